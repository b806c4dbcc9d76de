"""Workers: keeps runs driven. One run in this process, one worker, a pool of workers, and units for the machine's services.

Here: what a worker is asked and what it reports. Not here: the worker itself (`wiring/worker.py`, `engine/process/`).
"""
