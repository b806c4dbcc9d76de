"""Runner: a process that holds work. It claims due tasks, drives their runs, and gives them back when it stops.

Invariants: ownership is the `claimed` event in the log, the task's holder only spreads the work; a runner that was
declared gone drives nothing any more; at a graceful stop a run is given back only when nothing of it executes.
A loop that survives an error counts it and shows it in `troubles`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from buoy.core import events as e
from buoy.core.ids import RunId
from buoy.core.lifecycle import RESTING, Status
from buoy.core.limits import (
    DRIVING_RUNS_MAX,
    STOP_GRACE_S,
    TASKS_CLAIM_MAX,
    WAITING_RUNS_MAX,
)
from buoy.engine.alarms import Alarms
from buoy.engine.definitions import Registry, Workflow
from buoy.engine.execution import Execution
from buoy.engine.journal import Journal
from buoy.engine.loading import read_log
from buoy.engine.pool import Pool
from buoy.engine.releases import Releases
from buoy.errors import CorruptLog, Problem, Unavailable
from buoy.ports import Clock, Ids, Progress, Released, RunnerInfo, Store, Task, Threads, Wants

_LOADS_AT_ONCE = 32
_POLL_S = 1.0
_PAUSE_AFTER_ERROR_S = 0.5
_WORKER_END_S = 10.0
# A run that this runner cannot take: others may, and a later try of its own may.
_RETRY_S = 30.0


class RunnerOptions(msgspec.Struct, frozen=True):
    """What a person may turn."""

    waiting_runs_max: int = WAITING_RUNS_MAX
    driving_runs_max: int = DRIVING_RUNS_MAX
    step_threads: int = 32
    workflow_threads: int = 64
    stop_grace_s: float = STOP_GRACE_S


class Runner:
    """Drives the runs of one process."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        info: RunnerInfo,
        *,
        clock: Clock,
        ids: Ids,
        threads: Threads | None,
        options: RunnerOptions | None = None,
    ) -> None:
        self.id = info.id
        self.info = info
        self.store = store
        self.registry = registry
        self.clock = clock
        self.ids = ids
        self.options = options or RunnerOptions()
        self.journal = Journal(store)
        self.alarms = Alarms(clock)
        self.step_pool = None if threads is None else Pool(threads, self.options.step_threads, "buoy-step")
        self.workflow_pool = None if threads is None else Pool(threads, self.options.workflow_threads, "buoy-workflow")
        self.progress: dict[RunId, Progress] = {}
        self.gone: str | None = None
        # For whoever wants to show what this runner does.
        self.on_taken: Callable[[Task], None] | None = None
        self.on_ended: Callable[[Execution], None] | None = None
        self.executions: dict[RunId, Execution] = {}
        self._releases = Releases(store, self.id)
        self._resting: OrderedDict[RunId, None] = OrderedDict()
        self._waiters: dict[RunId, list[asyncio.Future[Execution | None]]] = {}
        self._creating: dict[RunId, asyncio.Future[bool]] = {}
        self._moved = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[bool] | None = None
        self._stopping = False
        self._errors = 0
        self._last_error: str | None = None

    # ---- life

    async def start(self, *, takes_work: bool = True) -> None:
        """Registers and begins to take work (unless this process only drives what it starts itself)."""
        self._loop = asyncio.get_running_loop()
        await self.store.register(self.info)
        self.journal.start()
        self._releases.start()
        self._worker = self._loop.create_task(self._work(takes_work), name="buoy-runner")

    async def stop(self, signal: str = "stop", grace_s: float | None = None) -> int:
        """Takes no more work, lets steps end, gives runs back. The number of runs that still execute."""
        self._stopping = True
        if self._idle is not None:
            self._idle.cancel()
        if self._worker is not None:
            # It ends by itself: what it is just claiming must not be left half done.
            await asyncio.wait([self._worker], timeout=_WORKER_END_S)
            self._worker.cancel()
        deadline = self.clock.monotonic() + (self.options.stop_grace_s if grace_s is None else grace_s)
        for execution in list(self.executions.values()):
            execution.stopping = True
        while self.executions and self.gone is None:
            self._moved.clear()
            self._give_back(signal)
            left_s = deadline - self.clock.monotonic()
            if not self.executions or left_s <= 0:
                break
            await self._wait_moved(left_s)
        return await self._close()

    def _give_back(self, signal: str) -> None:
        for execution in list(self.executions.values()):
            if execution.interrupt(signal) and not execution.detached:
                self._release(execution)

    async def _wait_moved(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._moved.wait()
        except TimeoutError:
            return  # the grace time is over; the caller looks at what is left

    async def _close(self) -> int:
        left = len(self.executions)
        for execution in list(self.executions.values()):
            execution.detach()
        await self.journal.close(at_once=self.gone is not None)
        await self._releases.close()
        self.alarms.close()
        for pool in (self.step_pool, self.workflow_pool):
            if pool is not None:
                pool.close()
        if not left and self.gone is None:
            # What it may still hold in the store (an unclear answer...) becomes due for others.
            await self.store.bury(self.id, "stopped", cause="interrupted", evidence={"runner": self.id})
        return left

    def declared_gone(self, why: str) -> None:
        """Somebody declared this runner dead. Dead is final: everything that it drives is dropped. Any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._drop_all, why)

    def _drop_all(self, why: str) -> None:
        self.gone = why
        self._note(why)
        for execution in list(self.executions.values()):
            execution.detach()
            self.lost(execution)
        self._moved.set()

    # ---- new work

    def create(self, workflow: Workflow[..., Any], run_id: RunId, created: e.WorkflowCreated) -> asyncio.Future[bool]:
        """A new run that this runner drives from its first event on. False: a run of that id exists already."""
        made: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        under_way = self._creating.get(run_id)
        if under_way is not None:
            under_way.add_done_callback(lambda _: None if made.done() else made.set_result(False))
            return made
        if run_id in self.executions:
            made.set_result(False)
            return made
        execution = Execution(self, workflow, run_id)
        self.executions[run_id] = execution
        self._creating[run_id] = made
        execution.after_commit(lambda: self._made(run_id))
        execution.create(created)
        return made

    def _made(self, run_id: RunId) -> None:
        made = self._creating.pop(run_id, None)
        if made is not None and not made.done():
            made.set_result(True)

    @property
    def full(self) -> bool:
        return self._stopping or self.gone is not None or self._room() <= 0

    def _room(self) -> int:
        return self.options.driving_runs_max - (len(self.executions) - len(self._resting))

    async def _work(self, takes_work: bool) -> None:
        while self.gone is None and not self._stopping:
            try:
                found = await self._claim() if takes_work else 0
                await self._read_inboxes()
                if not found and not self._stopping:
                    self._idle = asyncio.ensure_future(self.store.changed(_POLL_S))
                    await asyncio.wait([self._idle])
                    self._idle = None
            except Problem as error:
                self._note(str(error))
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)

    async def _claim(self) -> int:
        limit = min(self._room(), TASKS_CLAIM_MAX)
        if limit <= 0:
            return 0
        wants = Wants(self.info.queues, self.registry.names(), self.info.stack, self.info.env)
        tasks = await self.store.claim_tasks(self.id, wants, limit)
        for start in range(0, len(tasks), _LOADS_AT_ONCE):
            await asyncio.gather(*(self.take(task) for task in tasks[start : start + _LOADS_AT_ONCE]))
        return len(tasks)

    async def take(self, task: Task) -> None:
        """Replays a run and claims it. On any trouble the task is given back: it must not hang on this runner."""
        if task.run_id in self.executions:
            return  # Ours already: the claim in the log is what counts.
        try:
            events = await read_log(self.store, task.run_id)
            messages = await self.store.inbox(task.run_id)
            execution = Execution(self, self.registry.need(task.workflow), task.run_id, events)
            if not events or execution.ended:
                self._releases.add(task.run_id, Released(due_at=None))
                return
            self.executions[task.run_id] = execution
            await execution.resume(e.Claimed(runner=self.id, cause=task.cause, evidence=task.evidence), messages)
            if self.on_taken is not None:
                self.on_taken(task)
        except CorruptLog as error:
            self._note(f"run {task.run_id}: {error}")
            self._releases.add(task.run_id, Released(due_at=None))
        except Unavailable as error:
            self._note(f"run {task.run_id}: {error}")
            self._releases.add(task.run_id, Released(due_at=self.clock.now() + _POLL_S))
        except Problem as error:
            self._note(f"run {task.run_id}: {error}")
            stuck = self.executions.get(task.run_id)
            if stuck is not None:
                stuck.detach()
                self._forget(stuck)
            self._releases.add(task.run_id, Released(due_at=self.clock.now() + _RETRY_S))

    async def _read_inboxes(self) -> None:
        for run_id in await self.store.pokes(self.id):
            execution = self.executions.get(run_id)
            if execution is None or execution.detached:
                continue
            messages = await self.store.inbox(run_id, after=execution.mailbox.seen)
            execution.take(messages)
            await self.store.seen(run_id, self.id, execution.mailbox.seen)

    # ---- what executions tell

    def rested(self, execution: Execution) -> None:
        self._moved.set()
        if self._stopping:
            return
        if execution.state.status is Status.PAUSED:
            self._release(execution)
            return
        self._resting[execution.run_id] = None
        self._resting.move_to_end(execution.run_id)
        while len(self._resting) > self.options.waiting_runs_max:
            self._evict(next(iter(self._resting)))

    def _evict(self, run_id: RunId) -> None:
        del self._resting[run_id]
        execution = self.executions.get(run_id)
        if execution is not None and execution.settled and execution.state.status in RESTING:
            self._release(execution)

    def _release(self, execution: Execution) -> None:
        """Forgets a run that nothing executes; the store wakes it when its time or a message comes."""
        paused = execution.state.status is Status.PAUSED
        change = Released(due_at=None if paused else execution.state.wake_at, seen=execution.mailbox.seen)
        execution.detach()
        self._forget(execution)
        self._tell(execution, None)
        self._releases.add(execution.run_id, change)

    def ended(self, execution: Execution) -> None:
        self._forget(execution)
        self._tell(execution, execution)
        if self.on_ended is not None:
            self.on_ended(execution)

    def lost(self, execution: Execution) -> None:
        self._forget(execution)
        self._tell(execution, None)

    def _tell(self, execution: Execution, end: Execution | None) -> None:
        creating = self._creating.pop(execution.run_id, None)
        if creating is not None and not creating.done():
            creating.set_result(False)
        for waiter in self._waiters.pop(execution.run_id, ()):
            if not waiter.done():
                waiter.set_result(end)

    def _forget(self, execution: Execution) -> None:
        if self.executions.get(execution.run_id) is execution:
            del self.executions[execution.run_id]
        self._resting.pop(execution.run_id, None)
        self.progress.pop(execution.run_id, None)
        self._moved.set()

    def progressed(self, run_id: RunId, progress: Progress) -> None:
        self.progress[run_id] = progress

    def wait_end(self, run_id: RunId) -> asyncio.Future[Execution | None] | None:
        """Resolves when a run that is driven here ends, to None if it leaves this process. None if it is not here."""
        if run_id not in self.executions:
            return None
        waiter: asyncio.Future[Execution | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(run_id, []).append(waiter)
        return waiter

    # ---- health

    def holding(self) -> int:
        return len(self.executions)

    def troubles(self) -> tuple[int, str | None]:
        errors = self._errors + self.journal.errors + self._releases.errors
        return errors, self.journal.last_error or self._last_error or self._releases.last_error

    def _note(self, text: str) -> None:
        self._errors += 1
        self._last_error = text
