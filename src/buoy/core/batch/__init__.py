"""Jobs of batch runs: their graph, their resources, how lots are cut, and the state of each job.

Here: pure functions from values to values. Not here: who claims and runs a lot (`engine.batch`).
"""
