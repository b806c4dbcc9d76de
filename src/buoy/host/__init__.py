"""This machine: clock, ids, threads, processes, lock files and the shell.

Here: adapters of `ports.host`. Not here: any knowledge of runs.
"""
