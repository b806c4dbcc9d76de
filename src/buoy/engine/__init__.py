"""The engine: drives runs by their logs, on any store."""
