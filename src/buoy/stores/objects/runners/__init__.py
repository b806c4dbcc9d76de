"""Runners in a bucket: their records, heartbeats and deaths.

Here: the registry, its keys, the fleet as one listing shows it, and the removal of old records.
"""
