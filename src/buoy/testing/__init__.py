"""Test tools, for Buoy's users too.

For workflows: `local_app` and `LocalApp` (a store in memory and a clock that skips time), and `crash_test` (crashes a
workflow at every point). For pytest: the fixtures `buoy_app`, `buoy_clock` and `crashtest`.
For stores: `buoy.testing.contracts`, the contract that every store keeps. For Buoy itself: `simulator`.
"""

from buoy.testing.clock import ManualClock
from buoy.testing.crashtest import Finding, Options, Report, crash_test
from buoy.testing.local import LocalApp, Stuck, local_app
from buoy.testing.script import Script, read_script
from buoy.testing.skipping import SkippingClock

__all__ = [
    "Finding",
    "LocalApp",
    "ManualClock",
    "Options",
    "Report",
    "Script",
    "SkippingClock",
    "Stuck",
    "crash_test",
    "local_app",
    "read_script",
]
