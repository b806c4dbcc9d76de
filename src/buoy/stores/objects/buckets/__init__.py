"""Buckets: where the object store keeps its objects. A folder of this machine, or memory.

Here: create-if-absent, compare-and-swap, list. Not here: what the objects mean.
"""
