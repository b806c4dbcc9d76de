"""Schedules: when a run starts by the clock, and which missed times are caught up.

Here: cron expressions and catch-up rules. Not here: starting runs (`operations.workers.scheduler`).
"""
