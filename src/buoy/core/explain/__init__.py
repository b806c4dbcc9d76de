"""Explanations: a run in plain words, with the evidence and the commands that help.

Here: every sentence of `buoy why`. Not here: decisions; no other part of the core may read these texts.
May import everything below it in the core.
"""
