"""Wiring: joins the ports to their adapters, and is the only place that knows both sides.

One file for each thing that can be opened: the library, a worker, a sweeper, a server, Slurm, a store to look at.
Absent on purpose: decisions. What is opened here decides by `engine/`, `recovery/` and `operations/`.
"""
