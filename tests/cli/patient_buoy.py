"""The command `buoy`, which waits longer before a command that a signal ended counts as failed.

A busy machine may take longer between two signals of one stop than the real limits (`STOP_ECHO_S`, `KILL_ECHO_S`).
"""

from __future__ import annotations

from buoy.__main__ import start
from buoy.engine.spec import commands

PATIENT_S = 60.0

if __name__ == "__main__":
    commands.STOP_ECHO_S = commands.KILL_ECHO_S = PATIENT_S
    start()
