"""The server: HTTP API, live streams, and the store for runners that reach nothing else. A skin of `operations/`.

Nothing here decides what becomes of a run. Handlers parse, ask one operation, and render its answer.
"""
