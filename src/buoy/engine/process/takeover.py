"""Takeover: the checks before a run of a dead owner is driven: its policy, and the rule about poison runs.

Invariants: a remedy is one commit on the log that was read, and only the holder of the task makes it. A sweep uses
the same pure rules, so it does not matter which of the two finds the run first. A run that keeps crashing its workers
is driven by a runner that holds nothing else. After more crashes it is quarantined.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from buoy.core.diagnosis.crash_loops import Crashes, crashes, poison_finding
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import SOLO_AFTER
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import State
from buoy.core.log.takeovers import LOST, left_by
from buoy.core.remedy.plan import RecoveryPlan, plan_recovery
from buoy.core.remedy.policy import Decision, decide
from buoy.engine.process.undrivable import hold
from buoy.engine.read_log import inbox_pages, read_log
from buoy.engine.run.containment import contain, reason_of
from buoy.engine.run.owed import duties_left
from buoy.engine.run.run_time import run_now
from buoy.engine.services.commits import write_of
from buoy.engine.services.recovery_log import note_recovery
from buoy.errors import CorruptLog, Problem
from buoy.ports.records import Ended, Held, Released, Task, TaskChange

if TYPE_CHECKING:
    from buoy.engine.process.runner import Runner

# When a run whose log lost its end is tried again: if this runner records the loss now, and if it cannot.
_SOON_S = 1.0
_LATER_S = 30.0


class TakeoverVerdict(msgspec.Struct, frozen=True):
    """What a log says about driving its run now. `plan`: something else is to be done first."""

    solo: bool = False
    plan: RecoveryPlan | None = None


def judge(state: State, log: Sequence[e.Event], claim: e.Claimed, policy: str, now: float) -> TakeoverVerdict:
    """Looks at a run that is about to be claimed. `policy`: that of its workflow."""
    if state.pause is not None or (claim.cause != LOST and state.claims < SOLO_AFTER):
        return TakeoverVerdict()
    counted = _crashes(log, claim, now)
    if counted.poison:
        finding = poison_finding(counted)
        decision = Decision("quarantine", "it ends the processes that drive it", policy)
        return TakeoverVerdict(plan=plan_recovery(state.run_id, log, finding, decision, claim.runner))
    if claim.cause == LOST:
        plan = _by_policy(state, log, claim, policy, now)
        if plan is not None:
            return TakeoverVerdict(plan=plan)
    return TakeoverVerdict(solo=counted.wants_solo)


def _crashes(log: Sequence[e.Event], claim: e.Claimed, now: float) -> Crashes:
    """Crashes so far, including the one that this claim follows."""
    if claim.cause != LOST:
        return crashes(log)
    return crashes([*log, e.Event(log[-1].seq + 1, now, claim, log[-1].branch)])


def _by_policy(state: State, log: Sequence[e.Event], claim: e.Claimed, policy: str, now: float) -> RecoveryPlan | None:
    """The plan that the workflow's policy asks for, if it is not to continue where the run was."""
    if policy == "resume" or state.status is not Status.RUNNING:
        return None
    finding = Finding(
        code="H1",
        trouble=True,
        reason="the runner that drove it is dead",
        remedy="release",
        evidence=claim.evidence,
    )
    decision = decide(finding, policy, Facts(document=document(state), now=now))
    if decision.action in ("resume", "skip"):
        return None
    return plan_recovery(state.run_id, log, finding, decision, claim.runner)


def told_by_log(task: Task, state: State, log: Sequence[e.Event], runner: RunnerId) -> Task:
    """The task, as one that is taken over if another runner left the run with a step under way. How is not known."""
    owner = left_by(state, log) if task.cause != LOST else None
    if owner is None or owner == runner:
        return task
    return msgspec.structs.replace(task, cause=LOST, evidence={**task.evidence, "orphan": f"{owner} never let it go"})


async def remedy(runner: Runner, task: Task, log: Sequence[e.Event], claim: e.Claimed, plan: RecoveryPlan) -> None:
    """Appends what the plan says, and gives the task back."""
    at, now = await run_now(runner.store, runner.clock, task.run_id, log[-1].at), runner.clock.now()
    new = append(task.run_id, log, [claim, *plan.bodies], at, runner.ids.nonce())
    owes = plan.ends and bool(duties_left(task.run_id, [*log, *new.events]))
    # Due now, even if the log is dated later: another machine's clock must not put it off.
    change: TaskChange = Released(due_at=now if plan.wakes or owes else None, now=now, cause="resumed")
    if plan.ends and not owes:
        change = Ended()
    if not await runner.journal.commit(write_of(new, change)):
        runner.intake.request_reconcile()  # another process moved the run on
        return
    note_recovery(plan, reason=plan.reason, workflow=task.workflow, actor=claim.runner)
    runner.show(runner.intake.on_remedy, (plan, task.workflow))


async def claim_first(
    runner: Runner, task: Task, log: Sequence[e.Event], state: State, claim: e.Claimed
) -> list[e.Event] | None:
    """Claims a run whose owner died, or that must be alone, before its code runs: a crash by that code is recorded.

    Returns the log with the claim, which `state` then has, too. None: another process was quicker.
    """
    at = await run_now(runner.store, runner.clock, task.run_id, log[-1].at)
    new = append(task.run_id, log, [claim], at, runner.ids.nonce(), folded=state)
    taken = await runner.journal.commit(write_of(new, Held(runner.id)))
    return [*log, *new.events] if taken else None


async def release_truncated(
    runner: Runner, task: Task, write_down: Callable[[RunId], Awaitable[object]] | None
) -> None:  # fmt: skip
    """Releases a run whose log lost its end, and first records the loss: every later append would be fenced."""
    delay_s = _LATER_S if write_down is None else _SOON_S
    now = runner.clock.now()
    later = Released(due_at=now + delay_s, now=now, cause=task.cause, evidence=task.evidence)
    await runner.store.release(task.run_id, runner.id, later)
    if write_down is not None:
        await write_down(task.run_id)


async def hold_broken(runner: Runner, task: Task, error: Exception) -> bool:
    """Pauses a run that could not be taken because of an unexpected error. False: not even that could be recorded."""
    runner.note(f"run {task.run_id}: {reason_of(error)}", error)
    execution = runner.executions.get(task.run_id)
    if execution is not None:
        contain(execution, error)
        return True
    try:
        log = await read_log(runner.store, task.run_id)
        pause = e.Paused(reason="hold", detail=reason_of(error))
        if log and not await hold(runner, task, log, pause):
            runner.intake.request_reconcile()  # another process moved the run on
        return bool(log)
    except Exception as worse:  # noqa: BLE001 - reported, and the caller gives the run back
        runner.note(f"run {task.run_id}: {reason_of(worse)}", worse)
        return False


async def may_take(
    runner: Runner, run_id: RunId, log: Sequence[e.Event], holders: Sequence[RunnerId | None], *, doubtful: bool
) -> bool:
    """Whether the store names one of these as holder: a slow runner may have lost the run, or given it back since.

    Asked after the log was read. A runner that takes the task after the holder was read appends after that log, and
    fences us. One that took it before is found here. In a log without a claim no body can have started.
    """
    if not doubtful and not any(isinstance(event.body, e.Claimed) for event in log):
        return True
    record = await runner.store.run(run_id)
    return record is not None and record.holder in holders


async def last_message(runner: Runner, run_id: RunId) -> int:
    """The number of the last message, readable or not; 0 if it is unknown."""
    try:
        return await _inbox_end(runner, run_id)
    except Problem:
        return 0


async def _inbox_end(runner: Runner, run_id: RunId) -> int:
    try:
        record = await runner.store.run(run_id)
    except CorruptLog:
        last = 0
        async for page in inbox_pages(runner.store, run_id):
            last = max(each.number for each in page)
        return last
    return 0 if record is None else record.inbox_head
