"""What one process shares among all its runs: journal, timers, threads, step tasks, heartbeat.

Here: services that know nothing of a single run. Not here: claiming and driving runs (`process`, `run`).
"""
