"""Runs a spec under a log: the decider, its ready set, functions and shell commands.

Here: what `engine.code` is for Python code. Not here: the model of a spec (`core.spec`).
"""
