"""Workers: keeps runs driven. One run in this process, one worker, a pool of workers, the scheduler, service units.

Here: what a worker is asked and what it reports. Not here: the worker itself (`wiring/worker.py`, `engine/process/`).
"""
