"""Batch runs: what a person asks of runs whose commands are jobs on many machines.

Here: submit, runner, list, reset, recover. Not here: how jobs are offered and run (`engine.batch`).
"""
