"""The plugin's own fixtures: imported, so that they are there before the package is installed again."""

from buoy.testing.plugin import buoy_app, buoy_clock, crashtest

__all__ = ["buoy_app", "buoy_clock", "crashtest"]
