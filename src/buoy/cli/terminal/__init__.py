"""What the verbs of the command line share: options, errors, prompts, tables, live views.

Here: parsing and rendering. Not here: a verb of its own (one file each in `cli`).
"""
