"""The log of a run: its events, how they are written and read, and what they fold into.

Here: events, codec, state, document, lineage, questions. Not here: judging whether a run is healthy (`diagnosis`).
Imports only the small modules of `core` itself.
"""
