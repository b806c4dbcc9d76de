"""Control: acts on runs and schedules. Starts runs, sends messages, resumes, recovers, rewinds and migrates them.

Here: one module per action; `bulk` applies one to many runs. Not here: reading (`inspect/`), driving (`workers/`).
"""
