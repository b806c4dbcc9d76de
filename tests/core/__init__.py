"""Tests of the pure core: events in, state out."""
