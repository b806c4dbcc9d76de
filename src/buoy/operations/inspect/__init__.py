"""Looks at runs and at the store as a whole.

Here: lists, one run in detail, explanations, troubles, logs and pictures. Looking changes nothing.
Not here: anything that appends to a log, and how a result is drawn or sent.
"""
