"""Timetables: each time of a schedule starts exactly one run, no matter which workers fire it and how often.

Pure, as `invariants`: the schedule as it is stored at the end and the runs that it started in, complaints out. The
times are counted here independently of the code that fires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from buoy.core.log import events as e
from buoy.core.schedule.schedule import Schedule

_STAMP = "%Y%m%dT%H%M%SZ"
_STAMP_CHARS = len("20260101T000000Z")

RULE = "each time of a schedule starts one run"


# docs/schedules.md: what is later than this was missed. Hosts may be two seconds apart.
_ON_TIME_S = 60.0
_SKEW_S = 3.0


def wrong_fires(
    added: Schedule, stored: Schedule | None, outbox: Mapping[str, e.WorkflowCreated],
    born_at: Mapping[str, float] | None = None,
) -> Iterator[str]:  # fmt: skip
    """`added`: as it was acknowledged; `outbox`: the first events of all runs, `born_at` their times.

    None: clocks were set, so these times do not tell how late a worker was.
    """
    name = added.name
    if stored is None:
        yield f"{name}: it was acknowledged and is lost"
        return
    anchor, every_s = int(stored.created_at), stored.every_s or 1
    by_time: dict[int, str] = {}
    for run_id in (run for run, created in outbox.items() if created.by == f"schedule {name}"):
        at = _time_of(run_id, name)
        if at is None or at <= anchor or (at - anchor) % every_s:
            yield f"{name}: {run_id} was started for a time that is not one of its own"
        elif by_time.setdefault(at, run_id) != run_id:
            yield f"{name}: {by_time[at]} and {run_id} were started for the same time"
    times = range(anchor + every_s, int(stored.settled_at) + 1, every_s)
    settled = sum(at <= stored.settled_at for at in by_time)
    # A worker that ends between the start of a run and its note leaves that time to the next, which may be late.
    unnoted = stored.skipped if stored.catch_up != "all" else 0
    if not settled - unnoted <= stored.fired <= settled:
        yield f"{name}: {stored.fired} times are noted as fired, and {settled} runs were started for them"
    if stored.catch_up != "all":
        yield from _let_go_in_time(name, times, by_time, born_at or {})
        if stored.fired + stored.skipped != len(times):
            noted = f"{stored.fired} times are noted as fired and {stored.skipped} as skipped"
            yield f"{name}: {noted}, and {len(times)} have passed"
        return
    for at in (at for at in times if at not in by_time):
        yield f"{name}: no run was started for {datetime.fromtimestamp(at, UTC):{_STAMP}}"
    if stored.fired != len(times):
        yield f"{name}: {stored.fired} times are noted as fired, and {len(times)} have passed"


def _let_go_in_time(
    name: str, times: range, by_time: Mapping[int, str], born_at: Mapping[str, float]
) -> Iterator[str]:  # fmt: skip
    """A time may be let go only by a worker that looks when it is long over."""
    for at in (at for at in times if at not in by_time):
        looks = [born_at[run_id] for other, run_id in by_time.items() if other > at and run_id in born_at]
        if looks and min(looks) - at < _ON_TIME_S - _SKEW_S:
            yield f"{name}: no run was started for {datetime.fromtimestamp(at, UTC):{_STAMP}}, and it was not late"


def _time_of(run_id: str, name: str) -> int | None:
    try:
        stamp = run_id.removeprefix(f"{name}-")[:_STAMP_CHARS]
        return int(datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
