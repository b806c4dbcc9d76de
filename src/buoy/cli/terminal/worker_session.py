"""One worker of `buoy worker`: drives runs until it is stopped, or until nothing is left to do, and reports it.

Apart from the command: the parent of several workers does not load the engine.
"""

from __future__ import annotations

import asyncio
from typing import TextIO

import msgspec

from buoy.cli.terminal.report_lines import ReportLines
from buoy.cli.terminal.signals import Stop, stop_signals
from buoy.cli.terminal.workflow_files import load_all
from buoy.config import configured_store, load_settings
from buoy.core.diagnosis.takers import can_run
from buoy.core.durations import in_words
from buoy.core.limits import PARENT_ENDED_MARGIN_S, RUNS_PAGE_MAX, SWEEP_DELAY_S
from buoy.core.log.lifecycle import ACTIVE, RESTING, Status
from buoy.core.log.wording import counted
from buoy.engine.authoring.definitions import Registry
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.run.execution import Execution
from buoy.errors import BadInput
from buoy.ports.processes import ParentProcess
from buoy.ports.records import RunQuery, RunRecord, Task
from buoy.recovery.evidence import read_fleet
from buoy.wiring import Worker, open_worker

_LOOK_S = 0.2
_CAUSES = {
    "created": "new",
    "woken": "woken",
    "taken_over": "taken over",
    "interrupted": "given back by a stopped runner",
    "resumed": "resumed",
    "requested": "asked for",
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for."""

    registry: Registry
    store: str | None
    queues: tuple[str, ...]
    concurrency: int
    until_idle: bool
    grace_s: float
    as_json: bool
    calls: tuple[str, ...] = ()
    sweeps: bool = True
    # None: nothing was said, and so `until_idle` waits for no whole sweep.
    delay_s: float | None = None
    # Which worker of a pool this is, and how it hears its parent.
    member: tuple[int, ParentProcess] | None = None


def registry_of(files: tuple[str, ...], *, specs: bool) -> Registry:
    """What the worker can drive."""
    sources = files or load_settings().worker.files
    if not sources and not specs:
        raise BadInput("name at least one workflow file, or list them in buoy.toml under [worker] as files = [...]")
    registry = load_all(sources)
    registry.takes_specs = specs
    return registry


class Reporter:
    """Says what the worker does, one line each."""

    def __init__(self, lines: ReportLines) -> None:
        self.tell = lines.tell
        self._trouble = ""

    def taken(self, task: Task) -> None:
        why = _CAUSES.get(task.cause, task.cause)
        who = f" from {task.evidence['runner']}" if task.evidence.get("runner") else ""
        proof = task.evidence.get("proof") or task.evidence.get("orphan")
        text = f"took {task.run_id} ({task.workflow}): {why}{who}{f' ({proof})' if proof else ''}"
        self.tell("taken", text, run_id=task.run_id, workflow=task.workflow, cause=task.cause, evidence=task.evidence)

    def trouble(self, text: str) -> None:
        """The same one again and again is said once."""
        if text != self._trouble:
            self._trouble = text
            self.tell("trouble", f"trouble: {text}", trouble=text)

    def paused(self, execution: Execution) -> None:
        pause = execution.state.pause
        if pause is None:
            return
        why = f"{pause.reason}{f': {pause.detail}' if pause.detail else ''}"
        text = f"paused {execution.run_id} ({execution.workflow.name}): {why}"
        self.tell("paused", text, run_id=execution.run_id, reason=pause.reason, detail=pause.detail)

    def ended(self, execution: Execution) -> None:
        state = execution.state
        why = "" if state.error is None else f": {state.error}"
        self.tell("ended", f"{execution.run_id} {state.status}{why}", run_id=execution.run_id, status=state.status)


async def work(plan: Plan, out: TextIO) -> tuple[int, str | None]:
    """How many runs still execute at the end, and why others declared this worker gone, if they did."""
    options = RunnerOptions(
        driving_runs_max=plan.concurrency,
        stop_grace_s=plan.grace_s,
        calls=plan.calls,
        sweep_delay_s=SWEEP_DELAY_S if plan.delay_s is None else plan.delay_s,
    )
    url = configured_store(plan.store)
    async with open_worker(url, plan.registry, queues=plan.queues, options=options) as crewman:
        number = None if plan.member is None else plan.member[0]
        report = Reporter(ReportLines(out, crewman.clock.now, as_json=plan.as_json, process=number))
        crewman.runner.intake.on_taken, crewman.runner.on_ended = report.taken, report.ended
        crewman.runner.on_paused = report.paused
        crewman.runner.trouble_log.on_note = crewman.runner.journal.on_error = report.trouble
        with stop_signals() as stop:
            _hear_parent(plan, stop)
            try:
                await crewman.start(sweeps=plan.sweeps, schedules=True)
                known = ", ".join([*plan.registry.names(), *(["specs"] if plan.registry.takes_specs else [])])
                queues = ", ".join(crewman.info.queues)
                begun = (
                    f"worker {crewman.info.id} (process {crewman.info.pid}) drives {known} of {crewman.store.name}, "
                    f"from {'queue' if len(crewman.info.queues) == 1 else 'queues'} {queues}"
                )
                report.tell("started", begun, runner=crewman.info.id, pid=crewman.info.pid, workflows=known)
                if plan.member is not None:
                    plan.member[1].announce(crewman.info.id)
                await _until_stop(crewman, plan, stop, report)
            finally:
                left = await crewman.stop(stop.name or "idle")
        if left:
            note = f"still executing: {counted(left, 'run')}, to be taken over when this process has ended"
            report.tell("left", note, runs=left)
        report.tell("stopped", "stopped", signal=stop.name)
        return left, crewman.runner.gone


def _hear_parent(plan: Plan, stop: Stop) -> None:
    if plan.member is not None:
        plan.member[1].listen(stop.ask, end_within_s=plan.grace_s + PARENT_ENDED_MARGIN_S)


async def _until_stop(crewman: Worker, plan: Plan, stop: Stop, report: Reporter) -> None:
    asked = asyncio.ensure_future(stop.asked.wait())
    try:
        while not asked.done() and crewman.runner.gone is None:
            await asyncio.wait([asked], timeout=_LOOK_S)
            if plan.until_idle and not asked.done() and await _idle(crewman, report, plan):
                return
    finally:
        asked.cancel()
    if stop.name is not None:
        text = f"{stop.name}: stopping; steps under way have {in_words(plan.grace_s)} (again: at once)"
        report.tell("stopping", text, signal=stop.name, grace_s=plan.grace_s)


async def _idle(crewman: Worker, report: Reporter, plan: Plan) -> bool:
    """Whether nothing executes here and nothing that this worker could take is due, the dead's work included."""
    if not _at_rest(crewman):
        return False
    if plan.sweeps and plan.delay_s is not None and not crewman.sweeper.sweeps:
        return False  # what only a whole sweep finds is to be done, too
    if plan.sweeps and (await crewman.sweeper.sweep()).moved:
        return False  # something was just made due, and is about to be taken
    fleet = await read_fleet(crewman.store, crewman.liveness)
    me = fleet.get(crewman.info.id)
    query = RunQuery(statuses=tuple(sorted(ACTIVE | {Status.PAUSED})))
    waiting, cursor = 0, None
    while True:
        page = await crewman.store.find_runs(query, cursor, RUNS_PAGE_MAX)
        now = await crewman.store.now()
        for record in page.runs:
            due = record.holder is None and record.due_at is not None and record.due_at <= now
            if (due and can_run(record.document, me)) or (record.holder == me.id and not _at_rest(crewman, record)):
                return False
        waiting, cursor = waiting + len(page.runs), page.cursor
        if cursor is None:
            break
    if not _at_rest(crewman):
        return False
    report.tell("idle", f"nothing is left to do now; waiting or paused: {counted(waiting, 'run')}", waiting=waiting)
    return True


def _at_rest(crewman: Worker, record: RunRecord | None = None) -> bool:
    """Whether what this worker drives (or that one run) only waits for a time or a message."""
    executions = crewman.runner.executions
    if record is not None:
        found = executions.get(record.document.run_id)
        return found is not None and found.settled and found.state.status in RESTING
    return all(each.settled and each.state.status in RESTING for each in executions.values())
