"""The engine: drives runs by their logs, on any store.

Rooms, from the lowest: `authoring`, `services`, `code`, `spec`, `batch`, `run`, `process`, `client`. Each imports only
lower ones. Not here: stores and the host (ports stand for them), and judging runs of others (`recovery`).
"""
