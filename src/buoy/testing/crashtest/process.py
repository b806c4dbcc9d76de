"""A process under test: a real runner with a client and a person beside it, from its start to its end or its death.

In this process a crash stops everything at once: what was ready to run is dropped, no `finally` runs, nothing is closed
before the scenario is over. With `kill` set it is a real SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextvars import Context
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.client.client import Client
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.read_log import read_log
from buoy.errors import BadInput, Problem
from buoy.host.threads import SystemThreads
from buoy.ports.host import Liveness
from buoy.ports.store import Store
from buoy.recovery.sweep.sweeper import Sweeper
from buoy.testing.crashtest.gate import Gate, Point
from buoy.testing.crashtest.shell import StageShell
from buoy.testing.crashtest.watch import BodyWatch
from buoy.testing.local_host import (
    Hints,
    LocalStore,
    Shelf,
    local_worker,
    neighbours,
    runner_info,
    steps_executing,
)
from buoy.testing.person import Person
from buoy.testing.script import Script, title_of
from buoy.testing.skipping import Outside, SkippingClock, skipping_time

RUN_ID = RunId("crashtest")
_SWEEPS_S = (1.0, 10.0, 60.0)
_REST_FIRST_S = 0.01
_REST_MAX_S = 3600.0
_RESTS_MAX = 10_000


class Job(msgspec.Struct, frozen=True):
    """What is under test: the same in all scenarios."""

    workflow: Workflow[..., Any]
    stored: msgspec.Raw
    script: Script
    registry: Registry
    queues: tuple[str, ...]
    writes_max: int
    # Of a spec: the modules whose functions it may call.
    calls: tuple[str, ...] = ()


def make_job(
    workflow: Workflow[..., Any], stored: msgspec.Raw, script: Script, calls: tuple[str, ...], writes_max: int
) -> Job:
    """A job with all that the workflow's module can name; an input that does not fit is refused."""
    registry = Registry()
    found, queues = neighbours(workflow)
    for each in found:
        registry.add(each)
    workflow.arguments.decode(stored)
    return Job(workflow, stored, script, registry, tuple(sorted(queues)), writes_max, calls)


class NumberedIds:
    """Unique by the number of the process; the same in every execution of a scenario."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._count = count(1)

    def new(self, prefix: str = "") -> str:
        return f"{prefix}p{self._process}-{next(self._count)}"

    def nonce(self) -> str:
        return f"p{self._process}.{next(self._count)}"


class MortalLoop(asyncio.SelectorEventLoop):
    """A loop that can be dropped in the middle of a turn."""

    dead = False
    remains: tuple[asyncio.Task[Any], ...] = ()

    def kill(self) -> None:
        """Nothing of this loop runs any more. Its tasks are kept: collecting them would run their `finally`."""
        self.dead = True
        self.remains = tuple(asyncio.all_tasks(self))
        for task in self.remains:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for handle in vars(self)["_ready"]:
            handle.cancel()
        self.stop()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.dead:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self.dead:
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.dead:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            super().call_exception_handler(context)


class Process:
    """One process of a scenario."""

    def __init__(
        self,
        job: Job,
        number: int,
        shelf: Shelf,
        clock: SkippingClock,
        watch: BodyWatch,
        deaths: Liveness,
        point: Point | None,
        logs: Path,
    ) -> None:
        self.number = number
        self.name = f"process-{number}"
        self.ended = ""
        self.stores: list[Any] = []
        self.kill = False
        self._job = job
        self._shelf = shelf
        self._clock = clock
        self._watch = watch
        self._deaths = deaths
        self._point = point
        self._hints = Hints(clock)
        self._outside = Outside()
        self.shell = StageShell(logs, clock, self._outside, watch)
        self.loop = MortalLoop()
        self.runner: Runner | None = None
        self._idle = False
        self._problem: BaseException | None = None

    # ---- from outside

    def run(self) -> str:
        """Until its end: "ended", "paused", "stuck: ..." or "crashed"."""
        self._watch.process = self.number
        self._watch.tell("process")
        main = self.loop.create_task(self._live())
        main.add_done_callback(self._done)
        self._outside.also = self._threads_at_work
        with skipping_time(self.loop, self._clock, self._outside, self._executing, self._nothing_left):
            self.loop.run_forever()
        if self._problem is not None:
            raise self._problem
        return self.ended or "crashed"

    def _done(self, main: asyncio.Task[str]) -> None:
        if main.cancelled():
            self.ended = "stuck: its own code cancelled it"
        elif (error := main.exception()) is not None:
            self._problem = error
        else:
            self.ended = main.result()
        self.loop.kill()

    def _threads_at_work(self) -> bool:
        """Also those that have ended a step and not yet reported it to the loop."""
        pool = None if self.runner is None else self.runner.step_pool
        return self._watch.threads_at_work or (pool is not None and pool._busy > 0)

    def _executing(self) -> bool:
        return self.runner is not None and steps_executing(self.runner)

    def _nothing_left(self) -> None:
        """No timer is set and no body runs: the event that the run waits for will never come."""
        if self._idle:
            raise RuntimeError("the engine waits for something that will never happen")
        self._idle = True
        self._hints.written()

    def _die(self) -> None:
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        self.loop.kill()
        self.shell.drop()

    # ---- inside

    async def _live(self) -> str:
        job = self._job
        gate = Gate(await self._open(), self._hints, self._outside, self._watch, self._point, self._die)
        info = runner_info(self.name, job.registry, job.queues, real=self.kill)
        options = RunnerOptions(step_threads=8, calls=job.calls)
        ids, threads = NumberedIds(self.number), SystemThreads()
        worker = local_worker(
            cast(Store, gate), job.registry, info, self._clock, ids, threads, options, self._deaths, shell=self.shell
        )  # fmt: skip
        self.runner = runner = worker.runner
        self._deaths.announce(info.id)
        await runner.start()
        client, sweeper = worker.client("crashtest"), worker.sweeper
        await sweeper.sweep()
        self.loop.create_task(self._sweep_again(sweeper))
        outsider = cast(Store, LocalStore(await self._open(), self._hints, self._outside))
        voice = Client(
            outsider,
            job.registry,
            clock=self._clock,
            ids=NumberedIds(-self.number),
            liveness=self._deaths,
            actor="person",
        )
        gate.on_cancel = lambda: self._spawn_cancel(voice)
        if await outsider.run(RUN_ID) is None:
            await client.start_stored(RUN_ID, job.workflow, job.stored)
        return await self._until_end(gate, voice, Person(voice, job.script))

    async def _open(self) -> Any:
        with self._outside.job():
            store = await self._shelf.open(self._clock)
        self.stores.append(store)
        return store

    async def _sweep_again(self, sweeper: Sweeper) -> None:
        for pause_s in _SWEEPS_S:
            await asyncio.sleep(pause_s)
            await sweeper.sweep()

    def _spawn_cancel(self, voice: Client) -> None:
        async def cancel() -> None:
            try:
                await voice.cancel(RUN_ID, "crashtest")
            except Problem:
                return  # it has ended already

        self._cancelling = self.loop.create_task(cancel())

    async def _until_end(self, gate: Gate, voice: Client, person: Person) -> str:
        known = -1
        run_id: RunId = RUN_ID
        while True:
            known = await self._hints.wait(known)
            if gate.writes > self._job.writes_max:
                raise BadInput(
                    f"the workflow did not end within {self._job.writes_max:,} writes; test a shorter run of it"
                )
            for error in person.errors:
                raise error
            record = await voice.record(run_id)
            document = record.document
            if document.pause is not None:
                return "paused"
            if document.ended:
                following = await self._successor(voice, run_id)
                if following is None:
                    await self._rest()
                    return "ended"
                run_id, known, self._idle = following, -1, False
                if await voice.store.run(run_id) is None:
                    run_id = RUN_ID  # it is about to be born
                continue
            await person.look()
            if self._idle:
                # The steps and modules around a question wait for the question.
                titles = [title for leaf in document.open if (title := title_of(leaf))]
                return f"stuck: {', '.join(titles or [leaf.leaf for leaf in document.open]) or document.status}"

    async def _successor(self, voice: Client, run_id: RunId) -> RunId | None:
        log = await read_log(voice.store, run_id)
        ending = next((event.body for event in reversed(log) if isinstance(event.body, e.WorkflowCompleted)), None)
        return None if ending is None else ending.continued_as

    async def _rest(self) -> None:
        """What the run owes to others is done, and the runs that it left behind come to their ends or wait for good."""
        pause_s = _REST_FIRST_S
        for _ in range(_RESTS_MAX):
            if self._idle or not self._moves():
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _REST_MAX_S)

    def _moves(self) -> bool:
        runner = self.runner
        assert runner is not None
        if runner.outbox._tasks or runner.releases._queue:
            return True
        return any(not each.settled or each.state.wake_at is not None for each in runner.executions.values())
