"""Diagnosis: facts about a run in, findings out.

Here: the catalogue of troubles and one module of rules per kind. Not here: what to do about a finding (`remedy`).
May import `core.log` and `core.spec`.
"""
