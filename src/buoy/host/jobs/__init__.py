"""Jobs: commands of batch runs as processes under one guard for all jobs of a runner.

Here: the guard process and its client, logs, lanes of short jobs, ends that the store does not have yet.
Not here: which job runs where (`engine.batch`), and commands of specs that a worker runs (`host.shell`).
"""
