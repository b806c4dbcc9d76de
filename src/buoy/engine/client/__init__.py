"""Starts runs and sends them requests, from any process.

Here: client, run handle, requests, rewind, migration. Not here: driving runs.
The highest room of the engine.
"""
