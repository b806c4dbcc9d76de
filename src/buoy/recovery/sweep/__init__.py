"""Sweeps: look at every run that may be in trouble, and recover those that are.

Here: scope, scan, sweep, reconcile and the loop around them. Not here: the recovery of one run (`recovery.recover`).
"""
