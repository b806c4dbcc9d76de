"""Targets: the workflow or spec that a person names, and the input for it.

Here: loading Python files and spec files, and checking typed arguments.
Not here: the store.
"""
