"""Cron: the times at which a five-field expression fires.

    minute (0-59)  hour (0-23)  day of month (1-31 or L)  month (1-12 or jan-dec)  day of week (0-7 or sun-sat)

Each field is `*`, a number, a range `1-5`, steps `*/15` or `8-18/2`, or a list of these. `L` is the month's last day,
`fri#2` the second Friday. If both days are restricted, one of them is enough. Times are UTC unless a zone is given.
Invariants: times only grow; two workers that ask at different moments get the same times.
Absent on purpose: seconds, years, and where zones come from. `cronsim` matches fields; clock changes are handled here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import groupby

from cronsim import CronSim, CronSimError

from buoy.core.limits import CRON_CHARS_MAX
from buoy.errors import BadInput

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of month", "1 to 31, or L"),
    ("month", "1 to 12, or jan to dec"),
    ("day of week", "0 to 7, or sun to sat"),
)
_ONE_VALUE = re.compile(r"\b(\w+)-\1/\d+")
# Begins after the last leap day of its century: the next one is eight years away, the longest gap that there is.
_PROBE = datetime(2096, 3, 1, tzinfo=UTC)
_HOUR_S = 3600.0
# The 29th of February may be eight years away, around a century that is no leap year.
_LOOK_BACK_MAX_S = 9 * 366 * 24 * _HOUR_S


@lru_cache(maxsize=1024)  # workers ask for every schedule once a second
def parse_cron(text: str) -> str:
    """The expression in five fields, or a refusal that names the field that is wrong."""
    macro = text.strip().lower()
    if macro.startswith("@") and macro not in _MACROS:
        raise BadInput(f"cron {text[:CRON_CHARS_MAX]!r} is unknown; choose one of {', '.join(sorted(_MACROS))}")
    words = _MACROS.get(macro, text).split()
    if len(text) > CRON_CHARS_MAX:
        raise BadInput(f"cron expression too long: {len(text)} characters; use at most {CRON_CHARS_MAX}")
    if len(words) != 5:
        hint = "; seconds are not supported" if len(words) == 6 else ""
        raise BadInput(
            f"cron {text!r} has {len(words)} fields, it needs 5: minute hour day-of-month month day-of-week{hint}"
        )
    for place, word in enumerate(words):
        _check_field(place, word, text)
    # `cronsim` reads `5-5/2` as `5-31/2`.
    expression = _ONE_VALUE.sub(r"\1", " ".join(words))
    try:
        next(CronSim(expression, _PROBE))
    except (CronSimError, StopIteration):
        raise BadInput(f"cron {text!r} never fires: no month has such a day") from None
    return expression


def _check_field(place: int, word: str, text: str) -> None:
    alone = ["*"] * 5
    alone[place] = word
    try:
        CronSim(" ".join(alone), _PROBE)
    except CronSimError:
        name, values = _FIELDS[place]
        raise BadInput(
            f"cron {text!r}: the {name} is wrong: {word!r}; use {values}, ranges such as 1-5 with the smaller value "
            "first, steps such as */5, lists such as 1,3, or *"
        ) from None


def fires_after(expression: str, at: float, zone: tzinfo = UTC) -> Iterator[float]:
    """The times at which it fires after that one, in order."""
    # From the day before: a zone's change of clocks can move a time over midnight.
    begin = datetime.fromtimestamp(at, zone).replace(tzinfo=None) - timedelta(days=1)
    # `cronsim` sees wall-clock times only: with a zone it loses times where clocks change by half an hour.
    sim = CronSim(expression, begin.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(seconds=1))
    twice = len(sim.hours) == 24
    last = at
    for _, walls in groupby(sim, datetime.date):
        for instant in sorted({each for wall in walls for each in _instants(wall.replace(tzinfo=zone), twice)}):
            if instant > last:
                last = instant
                yield instant


def _instants(local: datetime, twice: bool) -> Iterator[float]:
    """A time that clocks skip comes as much later; one that they repeat counts twice only for every-hour schedules."""
    yield local.timestamp()
    if twice:
        yield local.replace(fold=1).timestamp()


def fire_before(expression: str, at: float, zone: tzinfo = UTC) -> float | None:
    """The last time at which it fired, up to and including that one."""
    window_s = _HOUR_S
    while window_s < 2 * _LOOK_BACK_MAX_S:
        latest = None
        for instant in fires_after(expression, at - window_s, zone):
            if instant > at:
                break
            latest = instant
        if latest is not None:
            return latest
        window_s *= 2
    return None
