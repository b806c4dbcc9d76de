"""Recovery: finds runs that dead processes left behind, diagnoses them, and makes them due again.

Here: evidence, failure detector, the recovery of one run, `sweep/` over all runs. Not here: pure rules
(`core.diagnosis`, `core.remedy`) and running workflows (`engine`).
"""
