"""Bundles: one run as one JSON file.

Here: the file format and its checks. Not here: reading from or writing to a store (`operations.maintenance.bundles`).
"""
