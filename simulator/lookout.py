"""A simulated lookout: a sweeper in a process of its own, as `buoy sweeper` is, with a scope of its own.

It is registered as a runner that takes no work, sweeps often, and looks closely at what has not moved for a moment:
the chaos does not last long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import SWEEP_LOOKS_MAX
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.services.heartbeat import Beating, Heartbeat
from buoy.errors import Problem
from buoy.ports.records import DEREGISTERED, Progress, RunnerInfo, SweepHealth
from buoy.ports.store import Store
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.recovery.sweep.sweeper import Sweeper
from simulator.plan import Post
from simulator.process import GONE_KEPT, Process

if TYPE_CHECKING:
    from simulator.world import World

_LOOK_S = 2.0
_SWEEP_S = 8.0
_STALE_AFTER_S = 5.0


class Lookout(Process):
    """A process that only sweeps. It exits when it was declared dead, and the agenda starts a new one."""

    def __init__(self, world: World, name: str, post: Post) -> None:
        super().__init__(world, name)
        self.post = post
        self.stopping = False
        self._store = self.open_store()
        self._beats_way: Store | None = None
        self.id = RunnerId(name)
        self.info = RunnerInfo(
            id=self.id,
            host="host" if world.plan.single_host else f"host-{name}",
            boot_id="boot",
            pid_namespace="ns",
            pid=1,
            process_started="1",
            nonce=name,
            role="sweeper",
        )
        client = Client(
            self._store, Registry(), clock=self.clock, ids=self.ids, liveness=world.liveness, actor=self.id
        )  # fmt: skip
        options = SweepOptions(
            scope=Scope(post.stack, post.env),
            stale_after_s=_STALE_AFTER_S,
            adopt=post.adopt,
            looks_max=SWEEP_LOOKS_MAX,
            gone_kept=GONE_KEPT,
        )
        self.sweeper = Sweeper(
            self._store, world.liveness, me=self.id, client=client, options=options, interval_s=_SWEEP_S, delay_s=0.0
        )
        self.progress: dict[RunId, Progress] = {}
        self.declared: str | None = None
        self._beats = Heartbeat(cast(Beating, self), self._beat_store, fences=not self._store.single_host)
        self.spawn(self._live)

    # ---- as its beats see it

    def holding(self) -> int:
        return 0

    def troubles(self) -> tuple[int, str | None]:
        return self.sweeper.errors, self.sweeper.last_error

    def sweep_health(self) -> SweepHealth | None:
        return self.sweeper.health()

    def declared_gone(self, why: str) -> None:
        self.declared = why

    async def _beat_store(self) -> Store:
        # A new connection meets the same faults.
        self._beats_way = self._beats_way or self.open_store(beats=True)
        return self._beats_way

    # ---- its life

    async def _live(self) -> None:
        try:
            await self._store.register(self.info)
        except Problem as problem:
            self.tell(f"cannot start: {problem}")
            self.exit()
            return
        scope = f"stack {self.post.stack or 'any'}, env {self.post.env or 'default'}"
        self.tell(f"sweeps {scope}{', and takes in what is foreign' if self.post.adopt else ''}")
        self.spawn(self._beats.run)
        self.sweeper.start()
        while self.declared is None:
            await asyncio.sleep(_LOOK_S)
            self.look_at(self.sweeper.last_error or self._beats.last_error)
        self.tell(f"was declared gone: {self.declared}")
        await self.sweeper.stop()
        self.exit()

    def stop(self) -> None:
        """It says good-bye."""
        if self.alive and not self.stopping:
            self.stopping = True
            self.spawn(self._stop)

    async def _stop(self) -> None:
        await self.sweeper.stop()
        self._beats.stop()
        try:
            await self._store.declare_dead(self.id, DEREGISTERED, cause="interrupted", evidence={"runner": self.id})
        except Problem as problem:
            self.tell(f"could not say good-bye: {problem}")
        self.exit()
