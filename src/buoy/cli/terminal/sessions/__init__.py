"""Sessions: commands that stay until they are stopped: a worker, a pool of workers, a runner of jobs.

Here: signals in, lines out. Not here: the work itself (`wiring/`, `engine/process/`).
"""
