"""Lines: how facts look on a terminal, one module for each kind: events, jobs, steps, recoveries, reports, runs.

Here: words and columns. Not here: reading the facts (`operations/`); tables and times in general (`render.py`).
"""
