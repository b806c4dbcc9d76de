"""Slurm: what a person asks of a batch run on a cluster: allocations, orphans, regenerate.

Here: what is recorded and submitted, and in which order. Not here: how Slurm is called (`host.slurm`), its texts and
the pure plans (`core.batch`).
"""
