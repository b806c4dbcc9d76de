"""A simulated worker: the real runner, beats, sweeper, scheduler and a client, as the wiring joins them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import SWEEP_LOOKS_MAX
from buoy.engine.process.runner_options import RunnerOptions
from buoy.errors import Problem
from buoy.ports.records import RunnerInfo
from buoy.ports.store import Store
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.wiring.worker import WorkerPorts, assemble_worker
from simulator.plan import Slot
from simulator.process import GONE_KEPT, Process
from simulator.workflows import Release

if TYPE_CHECKING:
    from simulator.world import World

_LOOK_S = 2.0
# More often than elsewhere: the chaos does not last long.
_SWEEP_S = 30.0


class Worker(Process):
    """A process that drives runs. It exits when its runner was declared dead, and the agenda starts a new one."""

    def __init__(self, world: World, name: str, slot: Slot, release: Release, options: RunnerOptions) -> None:
        super().__init__(world, name)
        self.slot = slot
        self.release = release
        self._store = self.open_store()
        self._beats_way: Store | None = None
        self.stopping = False
        # It stopped in order: it gave everything back, and said so.
        self.stopped_well = False
        registry = release.registry(specs=True)
        self.info = RunnerInfo(
            id=RunnerId(name),
            host="host" if world.plan.single_host else f"host-{name}",
            boot_id="boot",
            pid_namespace="ns",
            pid=1,
            process_started="1",
            nonce=name,
            stack=slot.stack,
            env=slot.env,
            queues=slot.queues,
            workflows=registry.versions(),
        )
        scope = Scope(slot.stack, slot.env)
        self.worker = assemble_worker(
            WorkerPorts(self._store, self.clock, self.ids, world.liveness, None, self._beat_store),
            registry,
            self.info,
            options=options,
            sweeps=SweepOptions(scope=scope, looks_max=SWEEP_LOOKS_MAX, gone_kept=GONE_KEPT),
            sweep_interval_s=_SWEEP_S,
        )
        self.runner, self.beats = self.worker.runner, self.worker.beats
        self.client = self.worker.client()
        self.sweeper, self.scheduler = self.worker.sweeper, self.worker.scheduler
        self.runner.trouble_log.on_unexpected = self.trouble
        self.spawn(self._live)

    @property
    def was_told(self) -> bool:
        return self.runner.gone is not None

    def drives(self, run_id: str) -> bool:
        execution = self.runner.executions.get(RunId(run_id))
        return execution is not None and not execution.detached and execution.ledger.durable_seq > 0

    def creates(self, run_id: str) -> bool:
        execution = self.runner.executions.get(RunId(run_id))
        return execution is not None and not execution.detached and execution.ledger.durable_seq == 0

    async def _beat_store(self) -> Store:
        # A new connection meets the same faults.
        self._beats_way = self._beats_way or self.open_store(beats=True)
        return self._beats_way

    async def _live(self) -> None:
        try:
            await self.worker.start(schedules=bool(self.world.plan.schedules))
        except Problem as problem:
            self.tell(f"cannot start: {problem}")
            self.exit()
            return
        self.spawn(self.beats.run)
        await self._gone()
        self.tell(f"was declared gone: {self.runner.gone}")
        if not self.stopping:
            await self._stop(0.0)

    async def _gone(self) -> None:
        while self.runner.gone is None:
            await asyncio.sleep(_LOOK_S)
            self.look_at(self.runner.troubles()[1] or self.beats.last_error)

    def stop(self, grace_s: float) -> bool:
        """A graceful stop. Whether it was the first time that it was asked to."""
        if not self.alive or self.stopping:
            return False
        self.stopping = True
        self.tell("is asked to stop")
        self.spawn(lambda: self._stop(grace_s))
        return True

    async def _stop(self, grace_s: float) -> None:
        self.stopping = True
        try:
            left = await self.worker.stop("SIGTERM", grace_s)
            self.tell(f"stopped, {left} runs still execute")
            self.stopped_well = not left and self.runner.gone is None
        except Problem as problem:
            self.tell(f"could not stop in order: {problem}")
        self.exit()
