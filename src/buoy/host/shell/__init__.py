"""The shell: commands of specs as processes that never outlive the worker that started them.

Here: the supervisor process and its client. Not here: which command a step runs (`engine.spec`).
"""
