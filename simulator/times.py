"""Times: when things may happen in a log: a run's own time, due times, back-off, and waits that a crash interrupts.

Pure, as `invariants`: evidence in, complaints out; and each can fail.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.log import events as e
from simulator.evidence import Check, Evidence
from simulator.reading import name_of, walked

# Times pass through sums and differences of floats.
_ROUNDING_S = 0.001
# The first back-off by the name of the step, as `steps` and `specs` declare it; each further one is twice as long.
_BACKOFF_S = {"slow": 0.2, "undo": 0.2, "stubborn": 5.0, "lease": 5.0}
_BACKOFF_OTHERS_S = 0.3
# How late a wait may end when nothing goes wrong: a poll, a claim and a commit.
LATE_S = 6.0


def times_never_go_back(found: Evidence) -> Iterator[str]:
    """The times of a log never decrease, on any host and however its clock is set."""
    for before, event in zip(found.log, found.log[1:], strict=False):
        if event.at < before.at:
            yield f"event {event.seq} is dated {before.at - event.at:.3f} s before event {before.seq}"


def nothing_fires_before_its_time(found: Evidence) -> Iterator[str]:
    """No timer, no time-out, no further attempt."""
    for event, due_at in () if found.clocks_set else _fired(found.log):
        if event.at < due_at - _ROUNDING_S:
            yield f"event {event.seq} ({event.type} of {name_of(event.body)}) comes {due_at - event.at:.3f} s too soon"


def _fired(log: list[e.Event]) -> Iterator[tuple[e.Event, float]]:
    """What happened because its time had come, and that time."""
    due: dict[str, float | None] = {}
    for event, _ in walked(log):
        body, leaf = event.body, name_of(event.body)
        if leaf is None:
            continue
        fires = isinstance(body, e.TimerFired) or (isinstance(body, e.SignalReceived) and body.message is None)
        fires = fires or (
            isinstance(body, e.StepStarted | e.ModuleStarted | e.CompensationStarted) and body.attempt > 1
        )
        due_at = due.get(leaf)
        if fires and due_at is not None:
            yield event, due_at
        due[leaf] = getattr(body, "due_at", None)


def attempts_wait_their_back_off(found: Evidence) -> Iterator[str]:
    """Each wait is as long as the step declares."""
    names: dict[str, str] = {}
    for event in found.log:
        body = event.body
        if isinstance(body, e.StepStarted):
            names[body.leaf] = body.name
        if isinstance(body, e.RetryScheduled | e.CompensationRetryScheduled):
            name = names.get(body.leaf, "")
            if isinstance(body, e.CompensationRetryScheduled) and name != "lease":
                name = "undo"
            first_s = _BACKOFF_S.get(name, _BACKOFF_OTHERS_S)
            wanted_s, waits_s = first_s * 2 ** (body.attempt - 1), body.due_at - event.at
            if abs(waits_s - wanted_s) > _ROUNDING_S:
                how = f"{waits_s:.3f} s after attempt {body.attempt}, and not {wanted_s}"
                yield f"event {event.seq}: {body.leaf} waits {how}"


def waits_end_in_time(found: Evidence) -> Iterator[str]:
    """A wait continues after a crash, and does not begin again. Judged where clocks agree and workers have room.

    Late is only what nothing excuses: no fault is left, and no process took, paused or resumed the run in between.
    """
    if found.calm_at is None:
        return
    moved_at = 0.0
    due: dict[str, float] = {}
    for event in found.log:
        body, leaf = event.body, name_of(event.body)
        if isinstance(body, e.Claimed | e.Paused | e.Resumed | e.BranchCreated | e.Interrupted):
            moved_at = event.at
        if leaf is None:
            continue
        fires = isinstance(body, e.TimerFired) or (isinstance(body, e.SignalReceived) and body.message is None)
        since = max(due.get(leaf, event.at), moved_at, found.calm_at)
        if fires and event.at - since > LATE_S:
            yield f"event {event.seq} ({event.type} of {leaf}) comes {event.at - since:.1f} s too late"
        due_at = getattr(body, "due_at", None)
        if due_at is not None:
            due[leaf] = due_at


def run_time_keeps_the_stores_pace(found: Evidence) -> Iterator[str]:
    """Where the store has a clock, a run's time never leaps, no matter which machine takes the run."""
    if found.lasted_s is None or not found.log:
        return
    spans_s = found.log[-1].at - found.log[0].at
    if spans_s > found.lasted_s + _ROUNDING_S:
        yield f"its log spans {spans_s:.1f} s, and all of this took {found.lasted_s:.1f} s"


TIMES: dict[str, Check] = {
    "times never go back": times_never_go_back,
    "nothing fires before its time": nothing_fires_before_its_time,
    "attempts wait their back-off": attempts_wait_their_back_off,
    "waits end in time": waits_end_in_time,
    "a run's time keeps the store's pace": run_time_keeps_the_stores_pace,
}
