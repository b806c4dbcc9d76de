"""Intake: takes due tasks for a runner. `engine.process.inboxes` reads messages for the runs that it holds.

Invariant: after any error the task is given back. It must not stay with a runner that does not drive it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import TASKS_CLAIM_MAX
from buoy.core.log import events as e
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.state import State, fold
from buoy.core.log.takeovers import LOST
from buoy.core.remedy.plan import RecoveryPlan
from buoy.core.spec.model import is_spec
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.process.held_runs import forgotten
from buoy.engine.process.inboxes import InboxLoop
from buoy.engine.process.isolation import IsolationSlot
from buoy.engine.process.polling import POLL_S, PollLoop, listener
from buoy.engine.process.takeover import (
    claim_first,
    hold_broken,
    judge,
    last_message,
    may_take,
    release_truncated,
    remedy,
    told_by_log,
)
from buoy.engine.process.undrivable import hold
from buoy.engine.process.version_routing import LEFT_PAUSE_S, VersionRouter
from buoy.engine.read_log import read_log, unread_inbox
from buoy.engine.run.containment import reason_of
from buoy.engine.run.execution import Execution
from buoy.engine.run.owed import duties_left
from buoy.engine.run.run_time import carried, keep_time, still_carrying
from buoy.engine.spec.library import DefinitionGone
from buoy.errors import CorruptLog, NotAllowedHere, Problem, Unavailable
from buoy.ports.records import Released, Task, Wants

if TYPE_CHECKING:
    from buoy.engine.process.runner import Runner

_LOADS_AT_ONCE = 32
_END_S = 10.0
# Pause before a run that this runner could not take is tried again, here or elsewhere.
_RETRY_S = 30.0
# A claim may become true long after its answer was lost, and a release be forgotten with a document that was lost.
_COMPARE_S = 240.0
# Specs that a runner names as left to others.
_UNABLE_MAX = 100


class _FoldedRun(NamedTuple):
    """A run that is about to be driven: its log and its state, folded once."""

    workflow: Workflow[..., Any]
    log: Sequence[e.Event]
    state: State


class Intake:
    """The loop that looks for work."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._round = PollLoop(runner, "intake", self._look)
        self.inboxes = InboxLoop(runner)
        self._listener = listener(runner, (self._round, self.inboxes.round))
        self._takes_work = True
        self._unclear = False
        self._full = False
        self._compare_at = runner.clock.monotonic() + _COMPARE_S
        self._isolation = IsolationSlot(runner)
        self._router = VersionRouter(runner)
        self.on_taken: Callable[[Task], None] | None = None
        # Runs that were given back for a moment, because the store did not answer: they are about to be taken again.
        self.put_off: set[RunId] = set()
        # A run that was taken over and not driven, with its workflow: it was quarantined, held, failed or restarted.
        self.on_remedy: Callable[[tuple[RecoveryPlan, str]], None] | None = None
        # Called when the end of a run's log is lost. By then no runner holds the run.
        self.on_cut_short: Callable[[RunId], Awaitable[object]] | None = None

    def start(self, *, takes_work: bool) -> None:
        self._takes_work = self._isolation.takes_work = takes_work
        for each in (self._round, self.inboxes.round, self._listener):
            each.start()

    async def stop(self) -> None:
        """Stops after the claims under way are complete."""
        await self._listener.stop(0.0)
        await self._round.stop(_END_S)
        await self.inboxes.round.stop(_END_S)

    @property
    def isolating(self) -> bool:
        """Whether a run that has to be alone is driven here, or waits for that: no other may be taken."""
        return self._isolation.wanted

    def request_reconcile(self) -> None:
        """Requests a comparison of what the store says we hold with what we drive, after an unclear answer."""
        self._unclear = True

    @contextmanager
    def _unless_clear(self) -> Iterator[None]:
        """Without an answer we may hold runs that we do not know about, or do not drive."""
        try:
            yield
        except BaseException:
            self._unclear = True
            raise

    def room_again(self) -> None:
        """The runner drives less than it did: if it was full, there may be work that waits."""
        if self._full:
            self._full = False
            self._round.wake()

    async def _look(self) -> bool:
        if self._unclear or self._runner.clock.monotonic() >= self._compare_at:
            self._compare_at = self._runner.clock.monotonic() + _COMPARE_S
            self._unclear = False
            with self._unless_clear():
                async for task, head_seq in forgotten(self._runner, self._isolation):
                    await self.take(task, head_seq=head_seq)
        if self._isolation.wanted:
            self._full = True
            return await self._go_alone()
        return self._takes_work and await self._claim() > 0

    async def _claim(self) -> int:
        runner = self._runner
        queues, most = runner.info.queues, TASKS_CLAIM_MAX
        if runner.wanted_now is not None:
            queues, most = runner.wanted_now()
        limit = min(runner.room(), most)
        self._full = limit <= 0 or not queues
        if self._full:
            return 0
        wants = Wants(
            queues=queues,
            workflows=tuple(name for name in runner.registry.names() if name not in runner.specs.unable),
            stack=runner.info.stack,
            env=runner.info.env,
            specs=runner.registry.takes_specs,
            excluded_specs=tuple(sorted(runner.specs.unable)),
        )
        with self._unless_clear():
            tasks = await runner.store.claim_tasks(runner.id, wants, limit)
        for broken in runner.store.met():
            runner.note(f"{broken.kind} {broken.id} cannot be read: {broken.reason}")
        mine = [task for task in tasks if not self._router.recently_deferred(task)]
        for start in range(0, len(mine), _LOADS_AT_ONCE):
            await self._take_all(mine[start : start + _LOADS_AT_ONCE])
        if tasks and not mine:
            await asyncio.sleep(LEFT_PAUSE_S)
        return len(tasks)

    async def _take_all(self, tasks: Sequence[Task]) -> None:
        """Reports an error that `take` does not catch. The next comparison finds its run; other runs continue."""
        for error in await asyncio.gather(*map(self.take, tasks), return_exceptions=True):
            if isinstance(error, Exception):
                self._unclear = True
                self._runner.note(reason_of(error), error)
            elif error is not None:
                raise error

    async def _go_alone(self) -> bool:
        """Takes the next run that has to be alone, once nothing else is driven here."""
        waiting = self._isolation.next()
        if waiting is None:
            return not self._isolation.wanted
        await self.take(waiting.task, alone=True, free_of=waiting.free_of)
        self._isolation.begun(waiting.task.run_id)
        return True

    async def take(
        self, task: Task, *, alone: bool = False, head_seq: int = 0, free_of: Sequence[RunnerId | None] = ()
    ) -> None:
        """Replays a run and claims it. `alone`: nothing else is driven here. `head_seq`: the number of events in the
        log.

        `free_of`: its task was not claimed from the store. The run is free while it has no holder (None), or while a
        runner holds it whose end is proven.
        """
        runner = self._runner
        self.put_off.discard(task.run_id)
        if task.run_id in runner.executions:
            self._unclear = True  # Ours already, or a stale one: the log decides.
            return
        try:
            # A release of ours whose answer was lost: it has nothing to do with this claim, unless it undid it.
            doubtful = await runner.releases.forget(task.run_id) or head_seq > 0
            await self._take(task, alone=alone, head_seq=head_seq, doubtful=doubtful, holders=(runner.id, *free_of))
        except CorruptLog as error:
            # Its messages must not wake it over and over. Once its log can be read again, a sweep finds them unread.
            self._give_back(task, error, None, await last_message(runner, task.run_id))
        except Unavailable as error:
            self.put_off.add(task.run_id)
            self._give_back(task, error, POLL_S)
        except NotAllowedHere as error:
            self._give_back(task, error, 0.0)  # another runner may, now; this one asks for it no more
            await self._publish_unable()
        except Problem as error:
            self._give_back(task, error, _RETRY_S)
        except Exception as error:  # noqa: BLE001 - recorded as a pause, or given back
            if not await hold_broken(runner, task, error):
                self._give_back(task, error, _RETRY_S)

    async def _take(
        self, task: Task, *, alone: bool, head_seq: int, doubtful: bool, holders: Sequence[RunnerId | None]
    ) -> None:
        runner = self._runner
        events = await read_log(runner.store, task.run_id)
        if not await may_take(runner, task.run_id, events, holders, doubtful=doubtful):
            return
        if len(events) < head_seq:
            runner.note(f"run {task.run_id}: its document is at event {head_seq}, but its log ends at {len(events)}")
            await release_truncated(runner, task, self.on_cut_short)
            return
        workflow = await self._workflow_of(task, events)
        if workflow is None:
            return
        if not events:
            runner.releases.add(task.run_id, Released(due_at=None, now=runner.clock.now()))
            return
        state = fold(task.run_id, events)
        if state.status in TERMINAL:
            # It ended in a process that could not do its last duties any more.
            runner.outbox.finish(task.run_id, duties_left(task.run_id, events))
            return
        if await self._router.leave(task, workflow, state):
            return
        found, (task, run_time) = task, carried(task)
        task = told_by_log(task, state, events, runner.id)
        claim = e.Claimed(runner=runner.id, cause=task.cause, evidence=task.evidence)
        verdict = judge(state, events, claim, workflow.recovery, runner.clock.now())
        if verdict.plan is not None:
            await remedy(runner, task, events, claim, verdict.plan)
            return
        if verdict.solo and not alone:
            self._isolation.wait(found, holders[1:])
            self._round.wake()
            return
        if verdict.solo:
            claim = msgspec.structs.replace(claim, evidence={**task.evidence, "solo": True})
        run = _FoldedRun(workflow, events, state)
        await self._drive(task, run, claim, run_time)

    async def _drive(self, task: Task, run: _FoldedRun, claim: e.Claimed, run_time: float | None) -> None:
        runner, (workflow, events, state) = self._runner, run
        messages = await unread_inbox(runner.store, task.run_id, state.consumed)
        to_claim: e.Claimed | None = claim
        suspect = task.cause == LOST or claim.evidence.get("solo") is True
        if runner.gone is None and suspect and state.pause is None:
            claimed = await claim_first(runner, task, events, state, claim)
            if claimed is None:
                self._unclear = True
                return
            events, to_claim = claimed, None
        execution = Execution(runner, workflow, task.run_id, events, state)
        await keep_time(runner.store, runner.clock, task.run_id, execution.ledger, run_time)
        if runner.gone is not None:
            return  # declared gone while it read: its task is due for others, and what it drives was dropped
        runner.executions[task.run_id] = execution
        # Another runner may claim the run first: only a claim in the log means that it is driven here.
        execution.after_commit(lambda: runner.show(self.on_taken, task))
        await execution.resume(to_claim, messages)
        self.inboxes.opened()

    async def _workflow_of(self, task: Task, events: Sequence[e.Event]) -> Workflow[..., Any] | None:
        """The code that drives the run; None if it is gone. The run is then paused or released here."""
        runner = self._runner
        if not is_spec(task.workflow) or not events:
            return runner.registry.need(task.workflow)
        try:
            return await runner.specs.of_log(task.workflow, events)
        except DefinitionGone as error:
            runner.note(f"run {task.run_id}: {error}")
            pause = e.Paused(reason="version", detail=str(error))
            self._unclear |= not await hold(runner, task, events, pause)
            return None

    def _give_back(self, task: Task, error: Exception, delay_s: float | None, seen: int = 0) -> None:
        runner = self._runner
        text = str(error) if isinstance(error, Problem) else reason_of(error)
        runner.note(f"run {task.run_id}: {text}")
        runner.drop(task.run_id)
        now = runner.clock.now()
        due_at = None if delay_s is None else now + delay_s
        change = Released(due_at=due_at, now=now, seen=seen, cause=task.cause, evidence=still_carrying(task))
        runner.releases.add(task.run_id, change)

    async def _publish_unable(self) -> None:
        """Publishes which specs this process leaves to others."""
        runner = self._runner
        unable = tuple(sorted(runner.specs.unable))[:_UNABLE_MAX]
        if unable != runner.info.unable:
            runner.info = msgspec.structs.replace(runner.info, unable=unable)
            await runner.store.register(runner.info)
