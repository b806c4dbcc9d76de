"""Wiring of a sweeper in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from buoy.config import (
    configured_store,
)
from buoy.core.ids import RunId
from buoy.core.limits import SWEEP_S
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.services.heartbeat import Heartbeat
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.host.threads import SystemThreads
from buoy.ports.host import Clock
from buoy.ports.records import DEREGISTERED, Progress, SweepHealth
from buoy.ports.store import Store
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.recovery.sweep.sweeper import Sweeper
from buoy.wiring.inspection import liveness_of, open_configured
from buoy.wiring.local_worker import runner_info


class SweeperProcess:
    """A sweeper in a process of its own, registered as a runner that takes no work, so that its health is seen."""

    def __init__(
        self, store: Store, options: SweepOptions, *,
        interval_s: float = SWEEP_S, once: bool = False, delay_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.store = store
        self.clock: Clock = SystemClock()
        self.progress: dict[RunId, Progress] = {}
        self.gone: str | None = None
        ids = SystemIds()
        liveness = liveness_of(store)
        self.liveness = liveness
        self.info = runner_info(ids, "sweeper", proof=liveness.proof)
        self.id = self.info.id
        client = Client(store, Registry(), clock=self.clock, ids=ids, liveness=liveness, actor=self.id)
        self.sweeper = Sweeper(
            store,
            liveness,
            me=self.id,
            client=client,
            options=options,
            interval_s=interval_s,
            delay_s=delay_s,
            once=once,
        )
        self._beats = Heartbeat(self, store.reopen, fences=store.self_fencing)

    def holding(self) -> int:
        return 0

    def troubles(self) -> tuple[int, str | None]:
        return self.sweeper.errors, self.sweeper.last_error

    def sweep_health(self) -> SweepHealth | None:
        return self.sweeper.health()

    def declared_gone(self, why: str) -> None:
        self.gone = why

    async def begin(self) -> None:
        self.liveness.announce(self.id)
        await self.store.register(self.info)
        SystemThreads().run(self._beats.run_in_thread, "buoy-beat")

    async def end(self) -> None:
        """Deregisters. Its last beat keeps what it found."""
        await self.sweeper.stop()
        self._beats.stop()
        try:
            if self.gone is None:
                await self._beats.last(self.store)
                await self.store.declare_dead(self.id, DEREGISTERED, cause="interrupted", evidence={"runner": self.id})
        finally:
            # If it cannot deregister, its end is proven by its lock.
            self.liveness.withdraw(self.id)


@asynccontextmanager
async def open_sweeper(
    url: str | None, options: SweepOptions, *, interval_s: float = SWEEP_S, once: bool = False
) -> AsyncIterator[SweeperProcess]:
    """A sweeper of its own on that store. At the end it has deregistered, and the store is closed."""
    store = await open_configured(configured_store() if url is None else url, SystemClock())
    try:
        process = SweeperProcess(store, options, interval_s=interval_s, once=once)
        await process.begin()
        try:
            yield process
        finally:
            await process.end()
    finally:
        await store.close()
