"""The jobs of a batch run as they are now: from its plan, its log, and what its open lots say.

Invariants: every job has exactly one status. What a job waits for is found along the graph once, not by paths.
The owner's log shows what ended; only a lot's own log shows that a job runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from buoy.core.batch.lots import is_lot
from buoy.core.ids import LeafId, RunId, leaf_id
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.lineage import visible
from buoy.core.log.state import State, fold
from buoy.core.spec.graph import topological
from buoy.core.spec.plan import SpecPlan


class JobStatus(StrEnum):
    """Where a job stands."""

    UNINITIALIZED = "uninitialized"  # no process has driven the run yet
    BLOCKED = "blocked"  # it needs jobs that have not completed
    READY = "ready"  # any runner with room may take it
    PENDING = "pending"  # in a lot that a runner holds; it has not started
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"  # stopped with its runner; the next one runs it again
    DISABLED = "disabled"


# Causes of jobs that were lost: with an allocation, or with a runner in none. Such a job shows as failed, and is free:
# the next runner runs it again, as the same attempt, without a reset.
ALLOCATION_LOST = "allocation_lost"
RUNNER_LOST = "runner_lost"
_LOST = (ALLOCATION_LOST, RUNNER_LOST)
SETTLED = frozenset({JobStatus.COMPLETED, JobStatus.DISABLED})
# Runs that ended while jobs were left, and where those stood.
_CUT_SHORT = frozenset({Status.FAILED, Status.CANCELLED})
_LEFT = frozenset({JobStatus.UNINITIALIZED, JobStatus.BLOCKED, JobStatus.READY, JobStatus.TERMINATED})


class LotFacts(msgspec.Struct, frozen=True):
    """What is known about an open lot. `begun`: since when its jobs run, by leaf.

    `host`: the machine of its holder, or of the runner that it was lost with.
    `lost`: why the runner is gone that had it last; no runner has it since.
    `dead`: the runner that is proven dead and still registered as its holder.
    """

    holder: str | None = None
    host: str | None = None
    begun: dict[LeafId, float] = {}
    attempts: dict[LeafId, int] = {}
    lost: str | None = None
    dead: str | None = None
    # The allocation of the runner that has it, or had it last.
    allocation: str | None = None


class Blocker(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of the job that keeps another one waiting."""

    status: JobStatus
    cause: str | None = None
    host: str | None = None
    at: float | None = None


class JobView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One job: `buoy jobs --json`."""

    job: str
    status: JobStatus
    attempt: int = 0
    lot: int | None = None
    runner: str | None = None
    host: str | None = None
    # The allocation that it runs in, or was lost or stopped with.
    allocation: str | None = None
    since: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    duration_s: float | None = None
    peak_memory_bytes: int | None = None
    # oom, timeout, signal, exit_code, missing_output, or the type of another error.
    cause: str | None = None
    error: str | None = None
    # The job whose failure or stop keeps this one waiting, directly or not.
    blocked_by: str | None = None
    blocker: Blocker | None = None

    @property
    def lost(self) -> bool:
        """Whether it failed with its runner only, so that the next runner runs it again."""
        return self.cause in _LOST


def job_views(
    run_id: RunId,
    plan: SpecPlan,
    log: Sequence[e.Event],
    lots: Mapping[int, LotFacts],
    state: State | None = None,
) -> list[JobView]:
    """All jobs of a run, in the order of its spec. `state`: what the log amounts to, if the caller has it."""
    state = fold(run_id, log) if state is None else state
    return with_results(log, state, brief_views(plan, log, lots, state))


def brief_views(plan: SpecPlan, log: Sequence[e.Event], lots: Mapping[int, LotFacts], state: State) -> list[JobView]:
    """All jobs of a run; of those that completed only their status, attempt and lot."""
    held: dict[LeafId, float] = {}
    for event in log if state.sees_all else visible(log):
        if type(event.body) is e.JobHeld:
            held[event.body.leaf] = event.at
    found = [_view(state, planned.id, held, lots) for planned in plan.steps]
    found = _with_blocks(plan, state, found)
    return [_ended(view) for view in found] if state.status in _CUT_SHORT else found


def with_results(log: Sequence[e.Event], state: State, views: Sequence[JobView]) -> list[JobView]:
    """These jobs; those that completed with what their log says about them."""
    wanted = {leaf_id("", view.job, 1) for view in views if view.status is JobStatus.COMPLETED}
    results: dict[LeafId, tuple[e.StepCompleted, float]] = {}
    for event in log if state.sees_all else visible(log):
        body = event.body
        if type(body) is e.StepCompleted and body.leaf in wanted:
            results[body.leaf] = body, event.at
    return [
        _completed(view, *results[leaf]) if (leaf := leaf_id("", view.job, 1)) in results else view for view in views
    ]


def counts(views: Iterable[JobView]) -> dict[JobStatus, int]:
    """How many jobs have each status, in the order of a job's life."""
    tally = Counter(view.status for view in views)
    return {status: tally[status] for status in JobStatus if tally[status]}


def open_lots(state: State) -> dict[int, RunId]:
    """The lots that have not ended, by number."""
    return {
        int(leaf.id.rpartition("-")[2].partition("#")[0]): leaf.child.child
        for leaf in state.open.values()
        if leaf.child is not None and is_lot(leaf.id)
    }


def cause_of(error: e.ErrorInfo) -> str:
    """Why a job failed, as one word for programs."""
    match error.type:
        case "OutOfMemory":
            return "oom"
        case "TimeLimit":
            return "timeout"
        case "OutputMissing":
            return "missing_output"
        case "Killed":
            return "signal"
        case "ExitCode":
            return "signal" if error.facts.get("signal") else "exit_code"
        case _:
            return error.type


def _view(state: State, name: str, held: Mapping[LeafId, float], lots: Mapping[int, LotFacts]) -> JobView:
    own = leaf_id("", name, 1)
    leaf = state.leaves.get(own)
    if leaf is not None and leaf.phase == "completed":
        return JobView(job=name, status=JobStatus.COMPLETED, attempt=leaf.attempt, lot=leaf.lot or None)
    if leaf is not None and leaf.phase in ("held", "failed"):
        return _failed(name, leaf, held.get(own))
    stopped = state.stopped.get(own)
    if stopped is not None and (leaf is None or leaf.phase != "open"):
        status = JobStatus.DISABLED if stopped == "disabled" else JobStatus.CANCELLED
        cause = stopped if stopped == "dependency" else None
        return JobView(job=name, status=status, attempt=0 if leaf is None else leaf.attempt, cause=cause)
    if leaf is not None and leaf.phase == "open" and leaf.kind == "job":
        return _offered(name, leaf, lots.get(leaf.lot, LotFacts()))
    if leaf is not None and leaf.phase == "open":
        return JobView(job=name, status=JobStatus.RUNNING, attempt=leaf.attempt, since=leaf.since)
    return JobView(job=name, status=JobStatus.BLOCKED, attempt=0 if leaf is None else leaf.attempt)


def _offered(name: str, leaf: Leaf, lot: LotFacts) -> JobView:
    began = lot.begun.get(leaf.id)
    attempt = lot.attempts.get(leaf.id, leaf.attempt)
    if began is not None and lot.holder is None and lot.lost is not None:
        return JobView(
            job=name,
            status=JobStatus.FAILED,
            attempt=attempt,
            lot=leaf.lot,
            host=lot.host,
            since=began,
            allocation=lot.allocation,
            cause=RUNNER_LOST if lot.allocation is None else ALLOCATION_LOST,
            error=lot.lost,
        )
    if began is not None:
        status = JobStatus.TERMINATED if lot.holder is None else JobStatus.RUNNING
    else:
        status = JobStatus.READY if lot.holder is None else JobStatus.PENDING
    return JobView(
        job=name,
        status=status,
        attempt=attempt,
        lot=leaf.lot,
        runner=lot.holder,
        host=lot.host,
        allocation=lot.allocation if began is not None or lot.holder is not None else None,
        since=leaf.since if began is None else began,
    )


def _completed(view: JobView, body: e.StepCompleted, at: float) -> JobView:
    value: Any = msgspec.json.decode(body.result)
    facts = _measured(value if isinstance(value, dict) else {})
    return JobView(job=view.job, status=view.status, attempt=body.attempt, lot=view.lot, since=at, **facts)


def _failed(name: str, leaf: Leaf, since: float | None) -> JobView:
    error = leaf.error or e.ErrorInfo(type="Unknown", message="no error was recorded")
    status = JobStatus.CANCELLED if error.kind == "cancelled" else JobStatus.FAILED
    return JobView(
        job=name,
        status=status,
        attempt=leaf.attempt,
        lot=leaf.lot or None,
        since=since,
        cause=cause_of(error),
        error=error.message,
        **_measured(error.facts),
    )


def _measured(facts: Mapping[str, Any]) -> dict[str, Any]:
    names = ("exit_code", "signal", "duration_s", "peak_memory_bytes", "host", "allocation")
    return {name: facts[name] for name in names if facts.get(name) is not None}


def _ended(view: JobView) -> JobView:
    """A job that no runner has, of a run that ended without it."""
    left = view.status in _LEFT or view.lost
    return msgspec.structs.replace(view, status=JobStatus.CANCELLED) if left else view


def _with_blocks(plan: SpecPlan, state: State, views: list[JobView]) -> list[JobView]:
    """Tells what is ready from what waits, and for whom it waits."""
    if all(view.status in SETTLED for view in views):
        return views
    order = topological(plan.needs, plan.after) or []
    blame: dict[int, JobView] = {}
    for node in order:
        view = views[node]
        with_need = view.status is JobStatus.CANCELLED and view.cause == "dependency"
        if view.status in (JobStatus.FAILED, JobStatus.CANCELLED) and not with_need:
            blame[node] = view
        if view.status is not JobStatus.BLOCKED and not with_need:
            continue
        waits = [each for each in plan.needs[node] if views[each].status not in SETTLED]
        blamed = next((found for each in waits if (found := blame.get(each)) is not None), None)
        if not waits and not with_need:
            views[node] = msgspec.structs.replace(view, status=_unoffered(state))
        elif blamed is not None:
            blame[node] = blamed
            blocker = Blocker(blamed.status, blamed.cause, blamed.host, blamed.since)
            views[node] = msgspec.structs.replace(view, blocked_by=blamed.job, blocker=blocker)
    return views


def _unoffered(state: State) -> JobStatus:
    """The status of a job that could run and was not offered: its condition is false, or its owner is not so far."""
    if state.status in TERMINAL:
        return JobStatus.DISABLED
    return JobStatus.UNINITIALIZED if state.owner is None else JobStatus.READY
