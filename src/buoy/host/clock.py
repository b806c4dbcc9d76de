"""The system's clock: wall time and monotonic time."""

from __future__ import annotations

import time


class SystemClock:
    """The clocks of this machine."""

    now = staticmethod(time.time)
    # Never set back. It stands still while the machine sleeps (CLOCK_BOOTTIME would not), and so do the beats: ages
    # measured by it make no runner look silent after a laptop wakes up.
    monotonic = staticmethod(time.monotonic)
