"""Runs workflow code under a log: private event loop, replay, determinism, the guard against I/O.

Here: the deciders of async and sync code. Not here: recording what the code asks for (`run`).
"""
