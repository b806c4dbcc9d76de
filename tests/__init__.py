"""Buoy's own tests. Names of tests are sentences of fact."""
