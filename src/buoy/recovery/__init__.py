"""Recovery: finds what the dead left behind and makes it due again. It never runs a workflow itself."""
