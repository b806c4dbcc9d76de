"""Control: acts on runs. Starts them, sends them messages, resumes, recovers, rewinds and migrates them.

Here: one module for each action; `bulk` applies one to many runs. Not here: reading (`inspect/`) and driving (`workers/`).
"""
