"""Runner: a process that holds work. It claims due tasks, drives their runs, and gives them back when it stops.

Invariants: ownership is the `claimed` event in the log, the task's holder only spreads the work; a runner that was
declared gone drives nothing any more; at a graceful stop a run is given back only when nothing of it executes.
A loop that survives an error counts it and shows it in `troubles`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import RESTING, Status
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.process.departure import Departure
from buoy.engine.process.hand_over import never_returns, release_of, used_by_other_hosts
from buoy.engine.process.intake import Intake
from buoy.engine.process.release_queue import ReleaseQueue
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.process.waiters import Waiters
from buoy.engine.run.containment import reason_of
from buoy.engine.run.execution import Execution
from buoy.engine.run.lingering_threads import Lingering
from buoy.engine.run.outbox import Outbox
from buoy.engine.services.journal import Journal
from buoy.engine.services.step_tasks import StepTasks
from buoy.engine.services.thread_pool import ThreadPool
from buoy.engine.services.timers import Timers
from buoy.engine.services.troubles import Troubles
from buoy.engine.spec.functions import SpecFunctions
from buoy.engine.spec.library import SpecLibrary
from buoy.engine.spec.runtime import SpecKit
from buoy.ports.host import AttemptSpans, Clock, Ids, Shell, Threads
from buoy.ports.records import DEREGISTERED, Progress, Released, RunnerInfo, SweepHealth
from buoy.ports.store import Store

_CLOSE_S = 2.0
_SOON_S = 1.0
_BROKEN_S = 30.0


class Runner:
    """Drives the runs of one process."""

    # Which queues have work for what is free now, and how many tasks to claim; None: its queues, as many as fit.
    wanted_now: Callable[[], tuple[tuple[str, ...], int]] | None = None
    spans: AttemptSpans | None = None

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
        shell: Shell | None = None,
    ) -> None:
        self.id, self.info = info.id, info
        self.store, self.registry = store, registry
        self.clock, self.ids = clock, ids
        self.options = options or RunnerOptions()
        self.executions: dict[RunId, Execution] = {}
        self.journal = Journal(store, self.executions)
        self.trouble_log = Troubles([self.journal])
        self.note, self.troubles, self.show = self.trouble_log.note, self.trouble_log.total, self.trouble_log.tell
        self.turning: Execution | None = None
        self.timers = Timers(clock, lambda error: self.note(reason_of(error), error))
        self.step_pool = _pool(threads, self.options.step_threads, "buoy-step")
        self.workflow_pool = _pool(threads, self.options.workflow_threads, "buoy-workflow")
        self.progress: dict[RunId, Progress] = {}
        self.gone: str | None = None
        # A release that is refused, like a fenced write: another process moved the run, and it may be ours again.
        self.releases = ReleaseQueue(store, self.id, lambda: self.intake.request_reconcile())
        self.trouble_log.loops.append(self.releases)
        self.outbox = Outbox(self)
        self.stopping, self._moved = asyncio.Event(), asyncio.Event()
        self.specs = SpecLibrary(store, SpecKit(SpecFunctions(self.options.calls), shell, self.stopping))
        self.intake: Intake = Intake(self)
        # Health of the sweeper of this process, if it has one. Heartbeats carry it.
        self.sweep_health: Callable[[], SweepHealth | None] = lambda: None
        # For displays of what this runner does.
        self.on_ended: Callable[[Execution], None] | None = None
        self.on_paused: Callable[[Execution], None] | None = None
        self._resting: OrderedDict[RunId, None] = OrderedDict()
        self.waiters, self.step_tasks, self.lingering = Waiters(), StepTasks(), Lingering()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._departure = Departure(self.note)
        self._registered = self._hands_over = False

    # ---- life

    async def start(self, *, takes_work: bool = True) -> None:
        """Registers and begins to take work (unless this process only drives what it starts itself)."""
        self._loop = asyncio.get_running_loop()
        await self.store.register(self.info)
        self._registered = True
        self.step_tasks.start()
        self.journal.start()
        self.releases.start()
        self.intake.start(takes_work=takes_work)

    async def stop(self, signal: str = "stop", grace_s: float | None = None) -> int:
        """Stops claiming, lets steps end, gives runs back. Returns the number of runs that still execute."""
        self.stopping.set()
        await self.intake.stop()
        await self._say_that_it_stops()
        for execution in list(self.executions.values()):
            execution.stopping = True
            execution.call_back()
        deadline = self.clock.monotonic() + (self.options.stop_grace_s if grace_s is None else grace_s)
        await self._give_back(signal, deadline)
        for execution in self.executions.values():
            execution.leaves.cancel_async()
        if cancelled := self.step_tasks.cancelled():
            until = self.clock.monotonic() + self.options.cancel_s
            await self._give_back(signal, until, cancelled)
            await asyncio.wait(cancelled, timeout=max(0.0, until - self.clock.monotonic()))
            await self._give_back(signal, self.clock.monotonic() + _CLOSE_S)
        await self.lingering.end(0.0 if self.gone else deadline - self.clock.monotonic(), self.note)
        return await self._close()

    async def _say_that_it_stops(self) -> None:
        """Takes this runner out of every queue, so that other runners stop counting on it."""
        if self.gone is None and self._registered:
            self.info = msgspec.structs.replace(self.info, queues=(), tends=())
            await self._departure.ask(self._leave_queues())

    async def _leave_queues(self) -> None:
        await self.store.register(self.info)
        self._hands_over = await used_by_other_hosts(self.store, self.info)

    async def _give_back(self, signal: str, deadline: float, tasks: Sequence[asyncio.Task[None]] = ()) -> None:
        """Gives back each run as soon as nothing of it executes, until the deadline, or until all these have ended."""
        for task in tasks:
            task.add_done_callback(lambda _: self._moved.set())
        while self.executions and self.gone is None:
            self._moved.clear()
            for execution in list(self.executions.values()):
                if execution.interrupt(signal) and not execution.detached:
                    self._release(execution)
            left_s = deadline - self.clock.monotonic()
            if not self.executions or left_s <= 0 or (tasks and all(task.done() for task in tasks)):
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._moved.wait()
            except TimeoutError:
                return

    async def _close(self) -> int:
        left = len(self.executions)
        for execution in list(self.executions.values()):
            execution.detach()
        await self.outbox.settle(0.0 if self.gone is not None else _CLOSE_S)
        written = await self.journal.close(patience_s=0.0 if self.gone is not None else _CLOSE_S)
        await self.releases.close(at_once=not written or self._departure.silent)
        if (not written or self._departure.silent) and self.gone is None:
            left = max(left, 1)  # the store takes nothing any more: as if killed, it is found by proof
        self.timers.close()
        for pool in (self.step_pool, self.workflow_pool):
            if pool is not None:
                pool.close()
        return left if left or self.gone is not None else await self._say_good_bye()

    async def _say_good_bye(self) -> int:
        """Makes due for others what it may still hold in the store, for example after an unclear answer."""
        last = self.store.declare_dead(self.id, DEREGISTERED, cause="interrupted", evidence={"runner": self.id})
        told = await self._departure.ask(last, registered=self._registered)
        # Before it was registered it has claimed nothing.
        return 0 if told or not self._registered else 1

    def declared_gone(self, why: str) -> None:
        """Another process declared this runner dead, which is final: drops everything that it drives. Any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._drop_all, why)

    def _drop_all(self, why: str) -> None:
        self.gone = why
        self.note(why)
        for run_id in list(self.executions):
            self.drop(run_id)
        self._moved.set()

    # ---- new work

    def create(self, workflow: Workflow[..., Any], run_id: RunId, created: e.WorkflowCreated) -> asyncio.Future[bool]:
        """A new run that this runner drives from its first event on. False: a run of that id exists already."""
        if run_id in self.executions:
            return self.waiters.second_creation(run_id)
        made = self.waiters.creation(run_id)
        execution = self.executions[run_id] = Execution(self, workflow, run_id)
        execution.after_commit(lambda: self.waiters.created(run_id, True))
        # The run is bound to the code that drives it, not to the code that asked for it.
        execution.create(msgspec.structs.replace(created, version=workflow.version))
        return made

    async def learn(self, workflow: Workflow[..., Any]) -> None:
        """Adds the code of one more workflow, and publishes it."""
        self.registry.add(workflow)
        if workflow.name not in self.info.workflows:
            self.info = msgspec.structs.replace(self.info, **self.registry.advertised())
            await self.store.register(self.info)

    @property
    def full(self) -> bool:
        # Tasks of an unregistered runner count as orphans, so it claims nothing before it registers.
        return not self._registered or self.stopping.is_set() or self.gone is not None or self.room() <= 0

    def room(self) -> int:
        """How many more runs may be driven at the same time."""
        return self.options.driving_runs_max - (len(self.executions) - len(self._resting))

    # ---- what executions report

    def rested(self, execution: Execution) -> None:
        self._moved.set()
        if self.stopping.is_set():
            return
        if execution.state.status is Status.PAUSED:
            self.show(self.on_paused, execution)
            self._release(execution)
            return
        self._resting[execution.run_id] = None
        self._resting.move_to_end(execution.run_id)
        while len(self._resting) > self.options.waiting_runs_max:
            self.give_back(self._resting.popitem(last=False)[0])

    def give_back_resting(self) -> None:
        """Drops all runs that only wait from memory."""
        while self._resting:
            self.give_back(self._resting.popitem(last=False)[0])

    def give_back(self, run_id: RunId) -> bool:
        """Drops a resting run from memory, unless it wakes by itself soon."""
        execution = self.executions.get(run_id)
        if execution is None or not execution.settled or execution.state.status not in RESTING:
            return False
        if self.wakes_soon(execution):
            return False
        self._release(execution)
        return True

    def wakes_soon(self, execution: Execution) -> bool:
        wake_at = execution.state.wake_at
        return wake_at is not None and execution.ledger.here(wake_at) <= self.clock.now() + _SOON_S

    def _release(self, execution: Execution) -> None:
        """Forgets a run that nothing executes; the store wakes it when its time or a message comes."""
        change = release_of(execution, self.clock, at_once=self._hands_over or never_returns(self, execution))
        head_seq = execution.ledger.durable_seq
        execution.detach()
        self._forget(execution)
        self.waiters.tell(execution.run_id, None)
        self.releases.add(execution.run_id, change, head_seq)

    def ended(self, execution: Execution) -> None:
        if execution.duties:
            self.outbox.finish(execution.run_id, execution.duties)
        self._forget(execution)
        if execution.ending is not None:
            self.waiters.keep(execution.state, execution.ending)
        self.waiters.tell(execution.run_id, execution)
        self.show(self.on_ended, execution)

    def lost(self, execution: Execution) -> None:
        self.intake.request_reconcile()
        self._forget(execution)
        self.waiters.tell(execution.run_id, None)

    def broken(self, execution: Execution, error: Exception) -> None:
        """Gives back a run whose trouble could not even be recorded. It is tried again later, here or elsewhere."""
        run_id, now = execution.run_id, self.clock.now()
        self.note(f"run {run_id}: {reason_of(error)}", error)
        change = Released(due_at=now + _BROKEN_S, now=now, seen=execution.mailbox.seen)
        execution.detach()
        self._forget(execution)
        self.waiters.failed(run_id, error)
        self.waiters.tell(run_id, None)
        self.releases.add(run_id, change, execution.ledger.durable_seq)

    def drop(self, run_id: RunId) -> None:
        """Stops driving this run, if it is driven here."""
        execution = self.executions.get(run_id)
        if execution is not None:
            execution.detach()
            self.lost(execution)

    def _forget(self, execution: Execution) -> None:
        if self.executions.get(execution.run_id) is execution:
            del self.executions[execution.run_id]
        self._resting.pop(execution.run_id, None)
        self.progress.pop(execution.run_id, None)
        self._moved.set()
        self.intake.room_again()

    def progressed(self, run_id: RunId, progress: Progress) -> None:
        self.progress[run_id] = progress

    def wait_end(self, run_id: RunId) -> asyncio.Future[Execution | None] | None:
        """Resolves when a run that is driven here ends, to None if it leaves this process. None if it is not here."""
        return self.waiters.end(run_id) if run_id in self.executions else None

    # ---- health

    def holding(self) -> int:
        return len(self.executions)


def _pool(threads: Threads | None, threads_max: int, name: str) -> ThreadPool | None:
    return None if threads is None else ThreadPool(threads, threads_max, name)
