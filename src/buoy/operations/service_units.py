"""Service: the texts that let a machine's own services sweep or work: a systemd unit, and a line for cron.

Absent on purpose: installing them. What a machine starts by itself is for its owner to say.
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
    """What the machine does: the words after `buoy`, for a process that stays and for one that comes from cron."""

    title: str
    staying: tuple[str, ...]
    coming: tuple[str, ...]
    # Further lines of the unit's [Service].
    lines: tuple[str, ...] = ()


def sweeping(interval_s: float, options: tuple[str, ...] = ()) -> Duty:
    """Puts lost runs back into their queues, for workers elsewhere. `options`: what all calls get."""
    return Duty(
        "Buoy sweeper: brings lost runs back",
        ("sweeper", "--interval", f"{interval_s:g}", *options),
        ("sweeper", "--once", *options),
    )


def working(files: tuple[str, ...], options: tuple[str, ...] = ()) -> Duty:
    """Executes what is due or was left behind. From cron: with a whole sweep first, until nothing is due any more.

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
    """`program`: how this very Buoy is called; `variables`: what its calls find in their environment, since a service
    does not have that of the shell which asked."""
    named = variables or {}
    for word in (*program, str(folder), *duty.staying, *named.values()):
        if not word.isprintable():
            raise BadInput(f"a line of a service cannot hold {word!r}: it has characters that cannot be printed")
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
    """An assignment as systemd reads it. A dollar sign means nothing there."""
    plain = f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"'


def _unit_word(word: str) -> str:
    """A word of a command as systemd reads it: percent and dollar signs mean something there."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(each in word for each in " \t\"'\\;") or not word else plain
