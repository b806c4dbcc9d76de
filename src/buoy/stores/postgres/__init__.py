"""The PostgreSQL store: one database, any number of hosts.

Each file fills in one part of the store port; every store folder uses the same file names. Not here: SQL text (`sql/`).
"""
