"""What a person or a program asks of a store, free of terminal and HTTP. Each operation returns frozen structs.

Here: `inspect/` looks, `control/` acts on runs, `workers/` drives them, `maintenance/` cares for the store, `targets/`
finds what a person names; `batch/` and `slurm/` do the same for jobs.
Not here: parsing options, printing (`cli`) and opening a store (`wiring`).
"""
