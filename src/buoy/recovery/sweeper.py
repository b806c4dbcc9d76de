"""Sweeper: looks for dead runners and lost work, and re-enqueues what it finds.

Invariants: death needs proof (silence is none); a read error is never evidence; any number of sweepers may work at
once, and doing it twice does nothing more. Its own health is kept: a sweeper that fails in silence is worse than none.
"""

from __future__ import annotations

import asyncio

import msgspec

from buoy.core.ids import RunnerId
from buoy.ports import Liveness, Store

_LOCKS_S = 1.0
_ORPHANS_EVERY = 30
_ORPHANS_MAX = 500


class Swept(msgspec.Struct, frozen=True):
    """What one sweep did."""

    dead_runners: int = 0
    released: int = 0
    adopted: int = 0


class Sweeper:
    """A loop that sweeps: locks every second, lost work every half minute."""

    def __init__(self, store: Store, liveness: Liveness, *, me: RunnerId | None = None) -> None:
        self._store = store
        self._liveness = liveness
        self._me = me
        self._task: asyncio.Task[None] | None = None
        self.sweeps = 0
        self.errors = 0
        self.last_error: str | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="buoy-sweeper")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while True:
            try:
                await self.sweep(orphans=self.sweeps % _ORPHANS_EVERY == 0)
                self.sweeps += 1
            except Exception as error:  # noqa: BLE001 - a loop that ends in silence is the worst way to fail
                self.errors += 1
                self.last_error = f"{type(error).__name__}: {error}"
            await asyncio.sleep(_LOCKS_S)

    async def sweep(self, *, orphans: bool = True) -> Swept:
        """One look at everything. Safe at any time, by anybody."""
        dead = released = adopted = 0
        for record in await self._store.runners():
            if record.info.id == self._me:
                continue
            evidence = self._liveness.proof_of_death(record)
            if evidence is None:
                continue
            why = str(evidence.get("proof", "proven dead"))
            found = {"runner": record.info.id, "pid": record.info.pid, **evidence}
            released += await self._store.bury(record.info.id, why, cause="taken_over", evidence=found)
            dead += 1
        if orphans:
            for orphan in await self._store.orphans(_ORPHANS_MAX):
                adopted += await self._store.adopt(orphan)
        return Swept(dead, released, adopted)
