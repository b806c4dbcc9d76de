"""Service: the texts that let a machine's own services sweep: a systemd unit, and a line for cron.

Absent on purpose: installing them. What a machine starts by itself is for its owner to say.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

# Cron counts in minutes.
_MINUTE_S = 60


class Service(msgspec.Struct, frozen=True):
    """Both forms. `systemd` is the content of a unit file, `crontab` one line."""

    systemd: str
    crontab: str


_UNIT = """\
[Unit]
Description=Buoy sweeper: brings lost runs back
After=network.target

[Service]
Type=simple
WorkingDirectory={folder}
ExecStart={command}
Restart=always
RestartSec=5
KillSignal=SIGTERM
TimeoutStopSec=30

[Install]
WantedBy=default.target
"""


def service(program: tuple[str, ...], folder: Path, *, interval_s: float, options: tuple[str, ...] = ()) -> Service:
    """`program`: how this very Buoy is called; `options`: what all calls of `buoy sweeper` get."""
    looping = [*program, "sweeper", "--interval", f"{interval_s:g}", *options]
    once = [*program, "sweeper", "--once", *options]
    unit = _UNIT.format(folder=_unit_path(folder), command=" ".join(_unit_word(each) for each in looping))
    place = f"cd {shlex.quote(str(folder))}"
    line = f"{_minutes(interval_s)} {place} && {shlex.join(once)} >/dev/null"
    # In a crontab a percent sign ends the command.
    return Service(unit, line.replace("%", "\\%") + "\n")


def _minutes(interval_s: float) -> str:
    minutes = max(1, round(interval_s / _MINUTE_S))
    if minutes < 60:
        return "* * * * *" if minutes == 1 else f"*/{minutes} * * * *"
    hours = min(23, max(1, round(minutes / 60)))
    return "0 * * * *" if hours == 1 else f"0 */{hours} * * *"


def _unit_path(folder: Path) -> str:
    return str(folder).replace("%", "%%")


def _unit_word(word: str) -> str:
    """A word of a command as systemd reads it: percent and dollar signs mean something there."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(each in word for each in " \t\"'\\;") or not word else plain
