"""Ports: every way out of the engine, as protocols and records.

Here: what a store, a host and a shell must offer. Not here: any implementation (`stores`, `host`).
"""
