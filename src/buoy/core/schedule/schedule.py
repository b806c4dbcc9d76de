"""Schedule: when runs start by the clock, and which missed times are caught up.

Invariants: what is due depends on the schedule and the time alone, so that every worker finds the same; a run's id is
made of the schedule's name and the time for which it fires, so that firing twice is firing once.
Absent on purpose: the clock, the store, and where time zones come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from itertools import islice, takewhile
from typing import Literal, TypeAlias

import msgspec

from buoy.core.ids import RunId, check_run_id
from buoy.core.limits import SCHEDULE_EVERY_MIN_S, SCHEDULE_FIRES_MAX, SCHEDULE_NAME_CHARS_MAX
from buoy.core.schedule.cron import fire_before, fires_after, parse_cron
from buoy.errors import BadInput

CatchUp: TypeAlias = Literal["none", "last", "all"]
# A worker that is busy, or a machine that reboots, is not an outage.
ON_TIME_S = 60.0


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One schedule as it is stored. `number` counts its changes; all times up to `settled_at` have been seen to."""

    name: str
    workflow: str
    input: msgspec.Raw
    created_at: float
    settled_at: float
    number: int = 0
    cron: str | None = None
    every_s: int | None = None
    zone: str | None = None
    catch_up: CatchUp = "last"
    workflow_version: str = ""
    policy: str = "resume"
    queue: str = "default"
    stack: str | None = None
    env: str | None = None
    by: str | None = None
    paused_at: float | None = None
    removed_at: float | None = None
    fired: int = 0
    skipped: int = 0
    last_run: RunId | None = None

    @property
    def active(self) -> bool:
        return self.paused_at is None and self.removed_at is None


class Due(msgspec.Struct, frozen=True):
    """For which times to start runs now; `skipped` times were missed and are let go; `settled_at` comes next."""

    fires: tuple[float, ...] = ()
    skipped: int = 0
    settled_at: float = 0.0


def check_schedule(schedule: Schedule, zone: tzinfo) -> None:
    """Refuses a schedule that could never fire, or whose times could not be distinguished."""
    check_run_id(schedule.name, "schedule name")
    if len(schedule.name) > SCHEDULE_NAME_CHARS_MAX:
        raise BadInput(f"schedule name {schedule.name[:60]!r} is longer than {SCHEDULE_NAME_CHARS_MAX} characters")
    if (schedule.cron is None) == (schedule.every_s is None):
        found = "neither" if schedule.cron is None else "both"
        raise BadInput(f"a schedule needs either a cron expression or an interval: found {found}; give one of them")
    if schedule.every_s is not None and schedule.every_s < SCHEDULE_EVERY_MIN_S:
        raise BadInput(f"an interval of {schedule.every_s} s is too short: at least {SCHEDULE_EVERY_MIN_S} s")
    if schedule.cron is not None:
        parse_cron(schedule.cron)
    next(fires(schedule, schedule.created_at, zone), None)


def fires(schedule: Schedule, after: float, zone: tzinfo) -> Iterator[float]:
    """The times of a schedule after that one, in order."""
    if schedule.cron is not None:
        yield from fires_after(parse_cron(schedule.cron), after, zone)
        return
    every_s, anchor = schedule.every_s or 1, int(schedule.created_at)
    turn = max(int((after - anchor) // every_s) + 1, 1)
    while True:
        yield float(anchor + turn * every_s)
        turn += 1


def _latest(schedule: Schedule, now: float, zone: tzinfo) -> float | None:
    if schedule.cron is not None:
        return fire_before(parse_cron(schedule.cron), now, zone)
    every_s, anchor = schedule.every_s or 1, int(schedule.created_at)
    turn = int((now - anchor) // every_s)
    return float(anchor + turn * every_s) if turn >= 1 else None


def due(schedule: Schedule, now: float, zone: tzinfo) -> Due | None:
    """What to do now; None if there is nothing to do."""
    if not schedule.active or now <= schedule.settled_at:
        return None
    window = takewhile(lambda at: at <= now, fires(schedule, schedule.settled_at, zone))
    found = list(islice(window, SCHEDULE_FIRES_MAX))
    if not found:
        return None
    if schedule.catch_up == "all":
        # Those beyond the limit stay due: the next look continues with them.
        return Due(tuple(found), 0, found[-1])
    if len(found) == SCHEDULE_FIRES_MAX:
        # A long outage: of all these times only the latest matter.
        recent = takewhile(lambda at: at <= now, fires(schedule, now - ON_TIME_S, zone))
        latest = _latest(schedule, now, zone)
        found += [at for at in islice(recent, SCHEDULE_FIRES_MAX) if at > found[-1]]
        found += [latest] if latest is not None and latest > found[-1] else []
    wanted = [at for at in found if now - at <= ON_TIME_S]
    if schedule.catch_up == "last" and not wanted:
        wanted = found[-1:]
    return Due(tuple(wanted), len(found) - len(wanted), now)


def settled(schedule: Schedule, done: Due) -> Schedule:
    """The schedule after that was done."""
    last = run_id(schedule.name, done.fires[-1]) if done.fires else schedule.last_run
    return msgspec.structs.replace(
        schedule,
        number=schedule.number + 1,
        settled_at=done.settled_at,
        fired=schedule.fired + len(done.fires),
        skipped=schedule.skipped + done.skipped,
        last_run=last,
    )


def run_id(name: str, fire_at: float) -> RunId:
    """The run that a schedule starts for that time. Times of schedules are whole seconds."""
    return RunId(f"{name}-{datetime.fromtimestamp(fire_at, UTC):%Y%m%dT%H%M%SZ}")


def when_text(schedule: Schedule) -> str:
    """When it fires, in words."""
    if schedule.cron is not None:
        return f"cron {schedule.cron!r}, {schedule.zone or 'UTC'}"
    return f"every {schedule.every_s} s"
