"""The command line: one module per verb.

Here: parsing and rendering. Not here: what a verb does (`operations`), and what the verbs share (`terminal`).
"""
