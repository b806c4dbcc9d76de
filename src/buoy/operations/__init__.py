"""What a person asks of a store, free of terminal and HTTP.

Here: doctor, purge, bundles, schedules, service units. Not here: parsing options and printing (`cli`).
"""
