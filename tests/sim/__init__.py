"""Tests of the simulator, and the simulator as a test of the engine."""
