"""Waiters: who waits in this process for a run to be durable, or to end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from buoy.core.ids import RunId

if TYPE_CHECKING:
    from buoy.engine.execution import Execution


class Waiters:
    """Futures by run."""

    def __init__(self) -> None:
        self._creating: dict[RunId, asyncio.Future[bool]] = {}
        self._ends: dict[RunId, list[asyncio.Future[Execution | None]]] = {}

    def creation(self, run_id: RunId) -> asyncio.Future[bool]:
        """Resolves when a new run is durable (True), or was there already (False)."""
        made: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._creating[run_id] = made
        return made

    def second_creation(self, run_id: RunId) -> asyncio.Future[bool]:
        """For one who comes while the same id is being created: False, once that is certain."""
        made: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        first = self._creating.get(run_id)
        if first is None:
            made.set_result(False)
        else:
            first.add_done_callback(lambda _: None if made.done() else made.set_result(False))
        return made

    def created(self, run_id: RunId, made: bool) -> None:
        waiter = self._creating.pop(run_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(made)

    def end(self, run_id: RunId) -> asyncio.Future[Execution | None]:
        """Resolves to the execution when the run ends, to None when it leaves this process."""
        waiter: asyncio.Future[Execution | None] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run_id, []).append(waiter)
        return waiter

    def tell(self, run_id: RunId, end: Execution | None) -> None:
        """The run ended, or left this process."""
        self.created(run_id, False)
        for waiter in self._ends.pop(run_id, ()):
            if not waiter.done():
                waiter.set_result(end)
