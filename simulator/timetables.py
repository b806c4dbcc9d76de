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


def wrong_fires(
    added: Schedule, stored: Schedule | None, outbox: Mapping[str, e.WorkflowCreated]
) -> Iterator[str]:  # fmt: skip
    """`added`: as it was acknowledged; `outbox`: the first events of all runs."""
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
    if stored.fired != settled:
        yield f"{name}: {stored.fired} times are noted as fired, and {settled} runs were started for them"
    if stored.catch_up != "all":
        if stored.fired + stored.skipped != len(times):
            noted = f"{stored.fired} times are noted as fired and {stored.skipped} as skipped"
            yield f"{name}: {noted}, and {len(times)} have passed"
        return
    for at in (at for at in times if at not in by_time):
        yield f"{name}: no run was started for {datetime.fromtimestamp(at, UTC):{_STAMP}}"
    if stored.fired != len(times):
        yield f"{name}: {stored.fired} times are noted as fired, and {len(times)} have passed"


def _time_of(run_id: str, name: str) -> int | None:
    try:
        stamp = run_id.removeprefix(f"{name}-")[:_STAMP_CHARS]
        return int(datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None
