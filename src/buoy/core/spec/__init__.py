"""Workflow specs: the model of a spec file, its reader, and everything that can be wrong in one.

Here: templates, conditions, the plan of steps, shell quoting. Not here: running a spec (`engine.spec`).
May import `core.log`.
"""
