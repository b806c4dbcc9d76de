"""Intake: where a runner's work comes from: due tasks, and messages for the runs that it holds.

Invariants: on any trouble a task is given back, it must not hang on this runner; a loop that survives an error notes
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from buoy.core import events as e
from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import TASKS_CLAIM_MAX
from buoy.core.spec import is_spec
from buoy.engine.births import Births
from buoy.engine.containment import reason_of
from buoy.engine.deference import LEFT_PAUSE_S, Deference
from buoy.engine.definitions import Registry, Workflow
from buoy.engine.duties import duties_left
from buoy.engine.execution import Execution
from buoy.engine.forgotten import forgotten
from buoy.engine.host import Host
from buoy.engine.loading import read_log
from buoy.engine.releases import Releases
from buoy.engine.solo import Solo
from buoy.engine.spec_absence import hold
from buoy.engine.spec_library import DefinitionGone
from buoy.engine.takeover import LOST, claim_first, hold_broken, judge, last_message, leave_cut_short, may_take, remedy
from buoy.errors import CorruptLog, NotAllowedHere, Problem, StoreLost, Unavailable
from buoy.ports import Message, Released, RunnerInfo, Store, Task, Wants

T = TypeVar("T")

_LOADS_AT_ONCE = 32
_POLL_S = 1.0
_PAUSE_AFTER_ERROR_S = 0.5
_END_S = 10.0
# A run that this runner cannot take: others may, and a later try of its own may.
_RETRY_S = 30.0
# A claim may become true long after its answer was lost, and a release be forgotten with a document that was lost.
_COMPARE_S = 240.0
# Specs that a runner names as left to others.
_UNABLE_MAX = 100


class Holder(Host, Protocol):
    """The runner, as its intake sees it."""

    id: RunnerId
    info: RunnerInfo
    store: Store
    registry: Registry
    releases: Releases
    births: Births
    executions: dict[RunId, Execution]
    gone: str | None

    @property
    def intake(self) -> Intake: ...

    def give_back_resting(self) -> None: ...

    def room(self) -> int: ...

    def drop(self, run_id: RunId) -> None: ...

    def declared_gone(self, why: str) -> None: ...

    def show(self, callback: Callable[[T], None] | None, what: T) -> None: ...

    def note(self, text: str, error: Exception | None = None) -> None: ...


class Intake:
    """The loop that looks for work."""

    def __init__(self, runner: Holder) -> None:
        self._runner = runner
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[bool] | None = None
        self._stopping = False
        self._unclear = False
        self._full = False
        self._compare_at = runner.clock.monotonic() + _COMPARE_S
        self._solo = Solo(runner)
        self._deference = Deference(runner)
        self.on_taken: Callable[[Task], None] | None = None
        # Told when the end of a run's log is lost; by then nobody holds it.
        self.on_cut_short: Callable[[RunId], Awaitable[object]] | None = None

    def start(self, *, takes_work: bool) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(takes_work), name="buoy-intake")

    async def stop(self) -> None:
        """Ends after the work in hand: what is just being claimed must not be left half done."""
        self._stopping = True
        if self._idle is not None:
            self._idle.cancel()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_END_S)
            self._task.cancel()

    def look_again(self) -> None:
        """Something was unclear: what the store says we hold is compared with what we drive."""
        self._unclear = True

    @contextmanager
    def _unless_clear(self) -> Iterator[None]:
        """Without an answer we may hold runs that we do not know of, or do not drive."""
        try:
            yield
        except BaseException:
            self._unclear = True
            raise

    def room_again(self) -> None:
        """The runner drives less than it did: if it was full, there may be work that waits."""
        if self._full and self._idle is not None:
            self._full = False
            self._idle.cancel()

    async def _work(self, takes_work: bool) -> None:
        while self._runner.gone is None and not self._stopping:
            try:
                if self._unclear or self._runner.clock.monotonic() >= self._compare_at:
                    self._compare_at = self._runner.clock.monotonic() + _COMPARE_S
                    self._unclear = False
                    with self._unless_clear():
                        async for task, head_seq in forgotten(self._runner, self._solo):
                            await self.take(task, head_seq=head_seq)
                found = await self._claim() if takes_work else 0
                await self._read_inboxes()
                if not found and not self._stopping:
                    self._idle = asyncio.ensure_future(self._runner.store.changed(_POLL_S))
                    await asyncio.wait([self._idle])
                    if not self._idle.cancelled():
                        self._idle.result()
                    self._idle = None
            except StoreLost as error:
                self._runner.declared_gone(str(error))
                return
            except Exception as error:  # noqa: BLE001 - a loop that ends in silence is the worst way to fail
                self._runner.note(f"{type(error).__name__}: {error}")
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)

    async def _claim(self) -> int:
        runner = self._runner
        limit = min(runner.room(), TASKS_CLAIM_MAX)
        self._full = limit <= 0 or self._solo.wanted
        if self._full:
            return await self._go_alone() if self._solo.wanted else 0
        wants = Wants(
            queues=runner.info.queues,
            workflows=tuple(name for name in runner.registry.names() if name not in runner.specs.unable),
            stack=runner.info.stack,
            env=runner.info.env,
            specs=runner.registry.takes_specs,
            but_not=tuple(sorted(runner.specs.unable)),
        )
        with self._unless_clear():
            tasks = await runner.store.claim_tasks(runner.id, wants, limit)
        for broken in runner.store.met():
            runner.note(f"{broken.kind} {broken.id} cannot be read: {broken.reason}")
        mine = [task for task in tasks if not self._deference.leave_again(task)]
        for start in range(0, len(mine), _LOADS_AT_ONCE):
            await asyncio.gather(*(self.take(task) for task in mine[start : start + _LOADS_AT_ONCE]))
        if tasks and not mine:
            await asyncio.sleep(LEFT_PAUSE_S)
        return len(tasks)

    async def _go_alone(self) -> int:
        """A run that must be alone waits for its turn, or has it."""
        task = self._solo.next()
        if task is None:
            return 0
        await self.take(task, alone=True)
        self._solo.begun(task.run_id)
        return 1

    async def take(
        self, task: Task, *, alone: bool = False, head_seq: int = 0, free_of: Sequence[RunnerId | None] = ()
    ) -> None:
        """Replays a run and claims it. `alone`: nothing else is driven here. `head_seq`: the log has so many events.

        `free_of`: its task was not claimed from the store. The run is free while nobody (None) holds it, or while a
        runner holds it whose end is proven.
        """
        runner = self._runner
        if task.run_id in runner.executions:
            self._unclear = True  # Ours already, or a stale one: the log tells.
            return
        try:
            # A release of ours whose answer was lost: it has nothing to do with this claim, unless it undid it.
            doubtful = await runner.releases.forget(task.run_id) or head_seq > 0
            await self._take(task, alone=alone, head_seq=head_seq, doubtful=doubtful, holders=(runner.id, *free_of))
        except CorruptLog as error:
            # Its messages must not wake it over and over. Once its log can be read again, a sweep finds them unread.
            self._give_back(task, error, None, await last_message(runner, task.run_id))
        except Unavailable as error:
            self._give_back(task, error, _POLL_S)
        except NotAllowedHere as error:
            self._give_back(task, error, 0.0)  # another runner may, now; this one asks for it no more
            await self._tell_unable()
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
            await leave_cut_short(runner, task, self.on_cut_short)
            return
        messages = await runner.store.inbox(task.run_id)
        workflow = await self._workflow_of(task, events, messages)
        if workflow is None:
            return
        execution = Execution(runner, workflow, task.run_id, events)
        if not events:
            runner.releases.add(task.run_id, Released(due_at=None))
            return
        if execution.ended:
            # It ended in a process that could not do its last duties any more.
            runner.births.finish(task.run_id, duties_left(task.run_id, events))
            return
        if await self._deference.leave(task, execution):
            return
        claim = e.Claimed(runner=runner.id, cause=task.cause, evidence=task.evidence)
        verdict = judge(execution, events, claim, runner.clock.now())
        if verdict.plan is not None:
            await remedy(runner, task, events, claim, verdict.plan)
            return
        if verdict.solo and not alone:
            self._solo.wait(task)
            return
        if verdict.solo:
            claim = msgspec.structs.replace(claim, evidence={**task.evidence, "solo": True})
        await self._drive(task, execution, events, claim, messages)

    async def _drive(
        self,
        task: Task,
        execution: Execution,
        events: Sequence[e.Event],
        claim: e.Claimed,
        messages: Sequence[Message],
    ) -> None:
        runner = self._runner
        to_claim: e.Claimed | None = claim
        if task.cause == LOST and execution.state.pause is None:
            claimed = await claim_first(runner, task, events, claim)
            if claimed is None:
                self._unclear = True
                return
            execution, to_claim = Execution(runner, execution.workflow, task.run_id, claimed), None
        runner.executions[task.run_id] = execution
        runner.show(self.on_taken, task)
        await execution.resume(to_claim, messages)

    async def _workflow_of(
        self, task: Task, events: Sequence[e.Event], messages: Sequence[Message]
    ) -> Workflow[..., Any] | None:
        """What drives the run; None if that is gone, and the run was seen to."""
        runner = self._runner
        if not is_spec(task.workflow) or not events:
            return runner.registry.need(task.workflow)
        try:
            return await runner.specs.of_log(task.workflow, events)
        except DefinitionGone as error:
            runner.note(f"run {task.run_id}: {error}")
            pause = e.Paused(reason="version", detail=str(error))
            self._unclear |= not await hold(runner, task, events, messages, pause)
            return None

    def _give_back(self, task: Task, error: Exception, delay_s: float | None, seen: int = 0) -> None:
        runner = self._runner
        text = str(error) if isinstance(error, Problem) else reason_of(error)
        runner.note(f"run {task.run_id}: {text}")
        runner.drop(task.run_id)
        due_at = None if delay_s is None else runner.clock.now() + delay_s
        change = Released(due_at=due_at, seen=seen, cause=task.cause, evidence=task.evidence)
        runner.releases.add(task.run_id, change)

    async def _tell_unable(self) -> None:
        """Others may know which specs this process leaves to them."""
        runner = self._runner
        unable = tuple(sorted(runner.specs.unable))[:_UNABLE_MAX]
        if unable != runner.info.unable:
            runner.info = msgspec.structs.replace(runner.info, unable=unable)
            await runner.store.register(runner.info)

    async def _read_inboxes(self) -> None:
        runner = self._runner
        for run_id in await runner.store.pokes(runner.id):
            execution = runner.executions.get(run_id)
            if execution is None or execution.detached:
                continue
            try:
                messages = await runner.store.inbox(run_id, after=execution.mailbox.seen)
                execution.take(messages)
                await runner.store.seen(run_id, runner.id, execution.mailbox.seen)
            except Unavailable:
                raise  # the store is away, for every run
            except Exception as error:  # noqa: BLE001 - one inbox that cannot be read must not hide the others
                runner.note(f"run {run_id}: its inbox cannot be read: {error}", error)
