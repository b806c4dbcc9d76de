"""The operator: across hosts no lock can prove a death, so an operator declares silent runners dead.

It is right about the dead ones. About frozen and silent runners it is sometimes wrong, as a real operator is: the log
must fence those.
"""

from __future__ import annotations

import asyncio

from buoy.errors import Problem
from simulator.process import Process

_LOOK_S = 4.0


class Operator(Process):
    """A process that buries."""

    def begin(self) -> None:
        self.spawn(self._look)

    async def _look(self) -> None:
        store = self.open_store()
        while True:
            await asyncio.sleep(self.rng.random() * _LOOK_S)
            try:
                for record in await store.runners():
                    if self._seems_gone(record.info.id):
                        await store.declare_dead(
                            record.info.id, "silent", cause="taken_over", evidence={"by": self.name}
                        )
            except Problem as problem:
                self.tell(f"could not look: {problem}")

    def _seems_gone(self, runner: str) -> bool:
        world = self.world
        process = world.processes[runner]
        silent = process.loop.frozen or world.kernel.time < world.faults.silent.get(runner, 0.0)
        return not process.alive or (silent and self.rng.random() < 0.3)

    def crash(self, when: str) -> None:
        """Never dies: the simulation has only one."""
