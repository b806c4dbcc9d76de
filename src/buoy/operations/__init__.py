"""What a person or a program asks of a store, free of terminal and HTTP.

Here: `inspect/` looks; recover, resume, messages, rewind, migrate and start change a run; drive and worker execute;
status, sweep, doctor, purge, bundles and schedules care for the store. Each returns frozen structs with facts.
Not here: parsing options, printing (`cli`) and opening a store (`wiring`).
"""
