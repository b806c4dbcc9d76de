"""Cron: when a schedule fires, from the five fields that everybody knows.

    minute (0-59)  hour (0-23)  day of month (1-31 or L)  month (1-12 or jan-dec)  day of week (0-7 or sun-sat)

Each field is `*`, a number, a range `1-5`, steps `*/15` or `8-18/2`, or a list of these. `L` is the month's last day.
If both days are restricted, one of them is enough, as ever. `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly` are
short for the obvious. Times are UTC unless a zone is given; there, a time that a change of clocks leaves out fires as
much later as the clocks were moved, and one that happens twice fires the first time, but for schedules of every hour.
Absent on purpose: seconds, years, and where zones come from.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo

import msgspec

from buoy.errors import BadInput

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# The 29th of February may be eight years away, around a century that is no leap year.
_DAYS_MAX = 366 * 9
_LAST = 32
_PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]+))?\Z")


class _Field(msgspec.Struct, frozen=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    names_from: int = 0


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("day of week", 0, 7, _DAYS, 0),
)


class Cron(msgspec.Struct, frozen=True):
    """A parsed expression. `any_day` and `any_weekday`: that field begins with a star, so it restricts nothing."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24

    def on(self, day: date) -> bool:
        """Whether it fires at all on that day."""
        if day.month not in self.months:
            return False
        last = monthrange(day.year, day.month)[1]
        by_day = day.day in self.days or (_LAST in self.days and day.day == last)
        by_weekday = (day.weekday() + 1) % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday


def parse_cron(text: str) -> Cron:
    """The expression, or a refusal that says which field is wrong and why."""
    words = _MACROS.get(text.strip().lower(), text).lower().split()
    if text.strip().startswith("@") and len(words) == 1:
        raise BadInput(f"cron {text!r} is unknown; there are {', '.join(sorted(_MACROS))}")
    if len(words) != 5:
        hint = "; seconds are not supported" if len(words) == 6 else ""
        raise BadInput(
            f"cron {text!r} has {len(words)} fields, it needs 5: minute hour day-of-month month day-of-week{hint}"
        )
    minutes, hours, days, months, weekdays = (
        _values(word, field, text) for word, field in zip(words, _FIELDS, strict=True)
    )
    found = Cron(
        text=text,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        any_day=words[2].startswith("*"),
        any_weekday=words[4].startswith("*"),
    )
    if next(_days(found, date(2096, 3, 1), 1), None) is None:
        raise BadInput(f"cron {text!r} never fires: no month has such a day")
    return found


def _values(word: str, field: _Field, text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        if field.name == "day of month" and part == "l":
            found.add(_LAST)
            continue
        found.update(_part(part, field, text))
    return frozenset(found)


def _part(part: str, field: _Field, text: str) -> range:
    match = _PART.match(part)
    if match is None:
        raise _wrong(text, field, f"{part!r} is neither a number, a range, a step nor '*'")
    first, last, step = match.groups()
    if first == "*":
        if last is not None:
            raise _wrong(text, field, f"{part!r}: '*' has no end")
        low, high = field.low, min(field.high, 6) if field.names is _DAYS else field.high
    else:
        low = _number(first, field, text)
        high = low if last is None else _number(last, field, text)
        if step is not None and last is None:
            raise _wrong(text, field, f"{part!r} has a step but no range; write '{first}-{field.high}/{step}'")
    if high < low:
        raise _wrong(text, field, f"the range {part!r} runs backwards; write two ranges with a comma between")
    if step is not None and not 1 <= int(step) <= field.high:
        raise _wrong(text, field, f"the step of {part!r} must be 1 to {field.high}")
    return range(low, high + 1, int(step or 1))


def _number(word: str, field: _Field, text: str) -> int:
    if word in field.names:
        return field.names.index(word) + field.names_from
    if not word.isdecimal() or len(word) > 2 or not field.low <= int(word) <= field.high:
        names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise _wrong(text, field, f"{word!r} is not {field.low} to {field.high}{names}")
    return int(word)


def _wrong(text: str, field: _Field, why: str) -> BadInput:
    return BadInput(f"cron {text!r}: the {field.name} is wrong: {why}")


def fires_after(cron: Cron, at: float, zone: tzinfo = UTC) -> Iterator[float]:
    """The times at which it fires after that one, in order, without end."""
    # From the day before: a zone's change of clocks can move a time over midnight.
    begin = datetime.fromtimestamp(at, zone).date() - timedelta(days=1)
    last = at
    while True:
        found = False
        for day in _days(cron, begin, 1):
            for instant in _instants(cron, day, zone):
                if instant > last:
                    last = instant
                    yield instant
            begin, found = day + timedelta(days=1), True
        if not found:
            return


def fire_before(cron: Cron, at: float, zone: tzinfo = UTC) -> float | None:
    """The last time at which it fired, up to and including that one."""
    begin = datetime.fromtimestamp(at, zone).date() + timedelta(days=1)
    for day in _days(cron, begin, -1):
        past = [instant for instant in _instants(cron, day, zone) if instant <= at]
        if past:
            return past[-1]
    return None


def _days(cron: Cron, begin: date, direction: int) -> Iterator[date]:
    """The days on which it fires, for some years."""
    for number in range(_DAYS_MAX):
        day = begin + timedelta(days=number * direction)
        if cron.on(day):
            yield day


def _instants(cron: Cron, day: date, zone: tzinfo) -> list[float]:
    found: set[float] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            found.add(local.timestamp())
            if cron.every_hour and zone is not UTC:
                found.add(local.replace(fold=1).timestamp())
    return sorted(found)
