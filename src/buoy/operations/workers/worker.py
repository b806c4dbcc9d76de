"""Worker: what a worker is asked to do, what it reports, and when it has nothing left to do.

Absent on purpose: the process around it. The wiring joins runner, heartbeat and sweeper; signals are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from buoy.config import load_settings
from buoy.core.diagnosis.takers import can_run
from buoy.core.limits import RUNS_PAGE_MAX, SWEEP_DELAY_S
from buoy.core.log import events as e
from buoy.core.log.lifecycle import ACTIVE, RESTING, Status
from buoy.core.remedy.plan import RecoveryPlan
from buoy.engine.authoring.definitions import Registry
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.run.execution import Execution
from buoy.errors import BadInput
from buoy.operations.targets.workflow_files import load_all
from buoy.ports.host import Liveness
from buoy.ports.records import Evidence, RunQuery, RunRecord, Task
from buoy.recovery.fleet import read_fleet
from buoy.recovery.recover import Recovery
from buoy.recovery.sweep.sweeper import Sweeper


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is asked to do."""

    registry: Registry
    queues: tuple[str, ...]
    concurrency: int
    until_idle: bool
    grace_s: float
    calls: tuple[str, ...] = ()
    sweeps: bool = True
    # None: nothing was said, and so `until_idle` waits for no whole sweep.
    delay_s: float | None = None

    @property
    def options(self) -> RunnerOptions:
        """The same for the runner."""
        return RunnerOptions(
            driving_runs_max=self.concurrency,
            stop_grace_s=self.grace_s,
            calls=self.calls,
            sweep_delay_s=SWEEP_DELAY_S if self.delay_s is None else self.delay_s,
        )

    @property
    def known(self) -> tuple[str, ...]:
        """What it can drive, by name."""
        return (*self.registry.names(), *(["specs"] if self.registry.takes_specs else []))


def worker_registry(files: tuple[str, ...], *, specs: bool) -> Registry:
    """What the worker can drive: the workflows of these files, or of the configured ones, and stored specs."""
    sources = files or load_settings().worker.files
    if not sources and not specs:
        raise BadInput("name at least one workflow file, or list them in buoy.toml under [worker] as files = [...]")
    registry = load_all(sources)
    registry.takes_specs = specs
    return registry


class TakenRun(msgspec.Struct, frozen=True):
    """A run that the worker took. `evidence`: what proves that its former owner is dead."""

    run_id: str
    workflow: str
    cause: str
    evidence: Evidence


class PausedRun(msgspec.Struct, frozen=True):
    """A run that was paused here."""

    run_id: str
    workflow: str
    reason: str
    detail: str | None


class EndedRun(msgspec.Struct, frozen=True):
    """A run that ended here."""

    run_id: str
    status: Status | None
    error: str | None


class WorkerListener(Protocol):
    """Hears what a worker does."""

    def taken(self, run: TakenRun) -> None: ...

    def paused(self, run: PausedRun) -> None: ...

    def ended(self, run: EndedRun) -> None: ...

    def trouble(self, text: str) -> None: ...

    def trouble_over(self, text: str) -> None: ...


def hear(runner: Runner, sweeper: Sweeper, listener: WorkerListener) -> None:
    """Lets the listener hear of that runner and its sweeper from now on."""

    def taken(task: Task) -> None:
        listener.taken(TakenRun(task.run_id, task.workflow, task.cause, task.evidence))

    def paused(execution: Execution) -> None:
        pause = execution.state.pause
        if pause is not None:
            listener.paused(PausedRun(execution.run_id, execution.workflow.name, pause.reason, pause.detail))

    def ended(execution: Execution) -> None:
        state = execution.state
        error = None if state.error is None else str(state.error)
        listener.ended(EndedRun(execution.run_id, state.status, error))

    def remedied(done: tuple[RecoveryPlan, str]) -> None:
        plan, workflow = done
        for body in plan.bodies:
            if isinstance(body, e.Paused):
                listener.paused(PausedRun(plan.run_id, workflow, body.reason, body.detail))
            elif isinstance(body, e.WorkflowFailed):
                listener.ended(EndedRun(plan.run_id, Status.FAILED, str(body.error)))

    def recovered(found: Recovery) -> None:
        if found.plan is not None and found.document is not None and found.action == found.plan.action:
            runner.show(remedied, (found.plan, found.document.workflow))

    runner.intake.on_taken, runner.on_paused, runner.on_ended = taken, paused, ended
    runner.intake.on_remedy, sweeper.on_recovery = remedied, recovered
    hear_troubles(runner, listener.trouble, listener.trouble_over)


def hear_troubles(runner: Runner, tell: Callable[[str], None], over: Callable[[str], None]) -> None:
    """Lets `tell` hear of what goes wrong around that runner's runs, and `over` of its end."""
    runner.trouble_log.on_note = runner.journal.on_error = tell
    runner.trouble_log.on_over = over


async def runs_left_when_idle(runner: Runner, sweeper: Sweeper, liveness: Liveness, order: WorkerOrder) -> int | None:
    """How many runs wait or are paused, if nothing executes here and nothing that this worker could take is due.

    None: it is not idle. Work of dead runners counts as due.
    """
    if not _at_rest(runner):
        return None
    if order.sweeps and order.delay_s is not None and not sweeper.sweeps:
        return None  # what only a whole sweep finds is to be done, too
    if order.sweeps and (await sweeper.sweep()).moved:
        return None  # something was just made due, and is about to be taken
    waiting = await _waiting(runner, liveness)
    return waiting if _at_rest(runner) else None


async def _waiting(runner: Runner, liveness: Liveness) -> int | None:
    """The number of runs that have not ended; None if one of them is due here, or executes here."""
    store = runner.store
    me = (await read_fleet(store, liveness)).get(runner.id)
    query = RunQuery(statuses=tuple(sorted(ACTIVE | {Status.PAUSED})))
    waiting, cursor = 0, None
    while True:
        page = await store.find_runs(query, cursor, RUNS_PAGE_MAX)
        now = await store.now()
        for record in page.runs:
            put_off = record.document.run_id in runner.intake.put_off
            due = record.holder is None and record.due_at is not None and (put_off or record.due_at <= now)
            if (due and can_run(record.document, me)) or (record.holder == me.id and not _at_rest(runner, record)):
                return None
        waiting, cursor = waiting + len(page.runs), page.cursor
        if cursor is None:
            return waiting


def _at_rest(runner: Runner, record: RunRecord | None = None) -> bool:
    """Whether what this worker drives (or that one run) only waits for a time or a message, or for nothing at all."""
    executions = runner.executions
    if record is not None:
        found = executions.get(record.document.run_id)
        return found is not None and _rests(found)
    return all(map(_rests, executions.values()))


def _rests(execution: Execution) -> bool:
    # A stuck run never moves again: a worker that waited for it would never end, and a cron job with it.
    return execution.stuck or (execution.settled and execution.state.status in RESTING)


def stuck_runs(runner: Runner) -> tuple[str, ...]:
    """The runs here that wait, with nothing open that could wake them."""
    return tuple(each.run_id for each in runner.executions.values() if each.stuck)
