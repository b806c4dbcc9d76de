"""Jobs of batch runs: the owner offers them in lots, and runners with room run them.

Here: the two deciders, the room of a runner, and the body of a job. Not here: claims, fencing and takeover, since a
lot is a run like any other; what follows from a graph and a log alone is in `core.batch`.
"""
