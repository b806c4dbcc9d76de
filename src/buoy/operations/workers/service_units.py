"""Service units: a systemd unit and a crontab line for a sweeper or a worker.

Absent on purpose: installing them. The owner of a machine decides what it starts.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from buoy.errors import BadInput

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 24 * 3600
# Every so often exactly: what divides an hour or a day. Any other step begins again each hour, or each day.
_CRON: dict[float, str] = {
    **{n * _MINUTE_S: f"*/{n} * * * *" for n in (2, 3, 4, 5, 6, 10, 12, 15, 20, 30)},
    **{n * _HOUR_S: f"0 */{n} * * *" for n in (2, 3, 4, 6, 8, 12)},
    _MINUTE_S: "* * * * *",
    _HOUR_S: "0 * * * *",
    _DAY_S: "0 0 * * *",
}


class Service(msgspec.Struct, frozen=True):
    """Both forms. `systemd` is the content of a unit file, `crontab` one line; None: cron cannot run it so often."""

    systemd: str
    crontab: str | None


class Duty(msgspec.Struct, frozen=True):
    """The arguments of `buoy`: `staying` for a service, `coming` for a process that cron starts."""

    title: str
    staying: tuple[str, ...]
    coming: tuple[str, ...]
    # Further lines of the unit's [Service].
    lines: tuple[str, ...] = ()


def sweeping(interval_s: float, options: tuple[str, ...] = ()) -> Duty:
    """A sweeper: queues lost runs again, for workers elsewhere. `options`: arguments of both forms."""
    return Duty(
        "Buoy sweeper: brings lost runs back",
        ("sweeper", "--interval", f"{interval_s:g}", *options),
        ("sweeper", "--once", *options),
    )


def working(files: tuple[str, ...], options: tuple[str, ...] = ()) -> Duty:
    """A worker: executes what is due or was left behind. From cron: sweeps first, and ends when nothing is due.

    systemd signals only the worker, which lets its commands end within the grace time, and kills what is left.
    """
    return Duty(
        "Buoy worker: drives runs, and takes over what was left behind",
        ("worker", *files, *options),
        ("worker", *files, "--until-idle", "--start-delay", "0", *options),
        ("KillMode=mixed",),
    )


_UNIT = """\
[Unit]
Description={title}
After=network.target

[Service]
Type=simple
WorkingDirectory={folder}
{variables}ExecStart={command}
Restart=always
RestartSec=5
KillSignal=SIGTERM
{lines}TimeoutStopSec=30

[Install]
WantedBy=default.target
"""


def service(
    program: tuple[str, ...],
    folder: Path,
    duty: Duty,
    *,
    interval_s: float,
    variables: dict[str, str] | None = None,
) -> Service:
    """Both forms of a duty. `program`: the command of this installation of Buoy.

    `variables`: environment of the service, which does not inherit that of the calling shell.
    """
    named = variables or {}
    for word in (*program, str(folder), *duty.staying, *named.values()):
        if not word.isprintable():
            raise BadInput(f"unprintable characters in {word!r}; a service file can only hold printable text")
    unit = _UNIT.format(
        title=duty.title,
        folder=_unit_path(folder),
        variables="".join(f"Environment={_unit_variable(name, value)}\n" for name, value in named.items()),
        command=" ".join(_unit_word(each) for each in (*program, *duty.staying)),
        lines="".join(f"{line}\n" for line in duty.lines),
    )
    when = _CRON.get(interval_s)
    given = "".join(f"{name}={shlex.quote(value)} " for name, value in named.items())
    line = f"{when} cd {shlex.quote(str(folder))} && {given}{shlex.join((*program, *duty.coming))} >/dev/null"
    # In a crontab a percent sign ends the command.
    return Service(unit, None if when is None else line.replace("%", "\\%") + "\n")


def nearest_cron(interval_s: float) -> tuple[float, ...]:
    """The intervals next to that one at which cron can sweep."""
    known = sorted(_CRON)
    lower = [each for each in known if each < interval_s][-1:]
    return (*lower, *[each for each in known if each > interval_s][:1])


def _unit_path(folder: Path) -> str:
    return str(folder).replace("%", "%%")


def _unit_variable(name: str, value: str) -> str:
    """Quotes an assignment for systemd, which does not expand dollar signs there."""
    plain = f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"'


def _unit_word(word: str) -> str:
    """Quotes a word of a command for systemd, which expands percent and dollar signs there."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(each in word for each in " \t\"'\\;") or not word else plain
