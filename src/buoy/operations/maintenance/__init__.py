"""Maintenance: cares for a store as a whole. Status, sweep, doctor, purge, bundles, copies, tokens.

Here: what an operator does with a store. Not here: the checks and repairs of one kind of store (`stores/`).
"""
