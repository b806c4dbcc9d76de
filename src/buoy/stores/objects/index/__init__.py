"""Indexes in a bucket: entries that help to find runs. The log stays the truth.

Here: writing and removing entries, lists and counts of runs by them, and entries that nothing leads to.
"""
