"""Remedies: which events bring a run back, and which completed work they keep.

Here: policies, recovery plans, rewinding to a step. Not here: committing them (`recovery.remedies`).
May import `core.diagnosis` and below.
"""
