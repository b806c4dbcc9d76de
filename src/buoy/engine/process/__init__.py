"""One worker process: claims due runs, drives them, and gives them back.

Here: runner, intake, takeover, isolation. Not here: the parts of a single run (`run`).
"""
