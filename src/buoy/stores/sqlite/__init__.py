"""The SQLite store: one file for the processes of one machine.

Each file fills in one part of the store port; every store folder uses the same file names.
"""
