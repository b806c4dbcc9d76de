"""The object store: runs as objects of a bucket, with create-if-absent and compare-and-swap.

Each file fills in one part of the store port; every store folder uses the same file names.
The storage itself is a bucket (`buckets`).
"""
