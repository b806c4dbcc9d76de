"""Worker: a runner with its heartbeat, sweeper, scheduler and client, assembled from ports.

Invariants: every worker is assembled here, the simulated one too, so the simulator tests what ships. The heartbeat
stops before the runner deregisters: a later beat would be refused as that of a runner declared gone.
Absent on purpose: adapters. The wiring hands in those of this machine, tests and the simulator hand in theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import NamedTuple

from buoy.core.ids import RunId
from buoy.core.limits import STUCK_RUNS_SHOWN, SWEEP_LOOKS_MAX, SWEEP_S
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.process.loop_watch import LoopWatch
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.services.heartbeat import Heartbeat
from buoy.errors import Problem
from buoy.operations.workers.scheduler import Scheduler
from buoy.ports.host import Clock, Ids, Liveness, Shell, Threads
from buoy.ports.records import RunnerInfo
from buoy.ports.store import Store
from buoy.recovery.recover import write_down_loss
from buoy.recovery.sweep.resume_paused import go_on_with_this_code
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.recovery.sweep.sweeper import Sweeper

_RETRY_S = 2.0
_CLOSE_S = 1.0


class WorkerPorts(NamedTuple):
    """Every way out of a worker. `reopen` gives the heartbeat a store connection of its own."""

    store: Store
    clock: Clock
    ids: Ids
    liveness: Liveness
    threads: Threads | None
    reopen: Callable[[], Awaitable[Store]]
    shell: Shell | None = None


class Worker:
    """One worker. Its parts are public: tests and the simulator start some of them alone."""

    def __init__(
        self,
        ports: WorkerPorts,
        registry: Registry,
        info: RunnerInfo,
        options: RunnerOptions,
        sweeps: SweepOptions,
        sweep_interval_s: float,
    ) -> None:
        self.store, self.clock, self.ids, self.liveness = ports.store, ports.clock, ports.ids, ports.liveness
        self._threads = ports.threads
        self.info = info
        self.runner = Runner(
            ports.store,
            registry,
            info,
            clock=ports.clock,
            ids=ports.ids,
            threads=ports.threads,
            options=options,
            shell=ports.shell,
        )
        self._loop_watch = LoopWatch(self.runner, self.runner.note, self.runner.trouble_log.over)
        # Silence never proves the end of a runner in an allocation, so it need not stop by itself either.
        fences, look = ports.store.self_fencing and info.proof != "allocation", self._loop_watch.look
        self.beats = Heartbeat(self.runner, ports.reopen, fences=fences, look_at_loop=look, stuck_runs=self._stuck_runs)
        self.sweeper = Sweeper(
            ports.store,
            ports.liveness,
            me=info.id,
            client=self.client(),
            options=sweeps,
            interval_s=sweep_interval_s,
            delay_s=options.sweep_delay_s,
        )
        self.scheduler = Scheduler(ports.store, clock=ports.clock, ids=ports.ids, scope=sweeps.scope)
        self.runner.sweep_health = self.sweeper.health
        self.runner.intake.on_cut_short = lambda run_id: write_down_loss(self.client(), run_id)
        self.runner.trouble_log.loops += [self.sweeper, self.scheduler]
        self._paused_runs: asyncio.Task[None] | None = None

    def _stuck_runs(self) -> tuple[RunId, ...]:
        """Called in the heartbeat's thread. Runs that execute, write or replay do not count."""
        driven = list(self.runner.executions.values())
        return tuple(islice((each.run_id for each in driven if each.stuck), STUCK_RUNS_SHOWN))

    def client(self, actor: str | None = None) -> Client:
        """Speaks to the store and to this runner."""
        return Client(
            self.store,
            self.runner.registry,
            clock=self.clock,
            ids=self.ids,
            liveness=self.liveness,
            runner=self.runner,
            actor=actor or self.info.id,
            stack=self.info.stack,
            env=self.info.env,
        )

    async def start(self, *, takes_work: bool = True, sweeps: bool = True, schedules: bool | None = None) -> None:
        """`schedules`: also start runs by the clock. Without a value, `sweeps` decides."""
        self.liveness.announce(self.info.id)
        await self.runner.start(takes_work=takes_work)
        if self._threads is not None:
            self._loop_watch.start()
            self._threads.run(self.beats.run_in_thread, "buoy-beat")
        if sweeps:
            self.sweeper.start()
        if sweeps if schedules is None else schedules:
            self.scheduler.start()
        if takes_work:
            self._paused_runs = asyncio.get_running_loop().create_task(self._resume_paused_runs())

    async def _resume_paused_runs(self) -> None:
        """Resumes runs that were paused because this code was missing, once the store answers."""
        while True:
            try:
                await go_on_with_this_code(self.client())
                return
            except Problem as error:
                self.runner.note(f"while looking for runs that wait for this code: {error}")
                await asyncio.sleep(_RETRY_S)

    async def stop(self, signal: str = "stop", grace_s: float | None = None) -> int:
        """The number of runs that still execute. Their lock is kept, so no other worker takes them over yet."""
        self.runner.stopping.set()  # at once: commands that the same signal reached are waiting for it
        await asyncio.gather(self.sweeper.stop(), self.scheduler.stop())
        if self._paused_runs is not None:
            await asyncio.wait([self._paused_runs], timeout=_CLOSE_S)
            self._paused_runs.cancel()
        self.beats.stop()
        left = await self.runner.stop(signal, grace_s)
        self._loop_watch.stop()
        if not left:
            self.liveness.withdraw(self.info.id)
        return left


def assemble_worker(
    ports: WorkerPorts,
    registry: Registry,
    info: RunnerInfo,
    *,
    options: RunnerOptions | None = None,
    sweeps: SweepOptions | None = None,
    sweep_interval_s: float = SWEEP_S,
) -> Worker:
    """A worker on these ports. By default it sweeps the stack and env of its runner."""
    scope = Scope(info.stack, info.env)
    chosen = sweeps or SweepOptions(scope=scope, looks_max=SWEEP_LOOKS_MAX)
    return Worker(ports, registry, info, options or RunnerOptions(), chosen, sweep_interval_s)
