"""A real store that fails on demand: before the work, or after it and without an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from buoy import RunnerOptions
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.client.client import Client
from buoy.errors import Unavailable
from buoy.ports.store import Store
from buoy.wiring.local_worker import host_worker

from .harness import QUICK_STOP, store_at


class FaultyStore:
    """Hands everything to the store below; `fail` says what goes wrong next.

    `before`: the call never reaches the store. `after`: it does its work there, but no answer comes back.
    """

    def __init__(self, below: Store) -> None:
        self._below = below
        self._faults: dict[str, list[tuple[str, Exception]]] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._late: dict[str, asyncio.Event] = {}
        self.calls: Counter[str] = Counter()
        # Calls whose work is done, answered or not.
        self.done: list[tuple[str, tuple[Any, ...]]] = []

    def fail(self, method: str, how: str, times: int = 1, error: Exception | None = None) -> None:
        self._faults.setdefault(method, []).extend([(how, error or Unavailable("no answer (a test)"))] * times)

    def hold(self, method: str) -> asyncio.Event:
        """Calls of that method wait from now on until the event is set."""
        self._gates[method] = asyncio.Event()
        return self._gates[method]

    def hold_answer(self, method: str) -> asyncio.Event:
        """Calls of that method do their work, and answer when the event is set: what they say is old by then."""
        self._late[method] = asyncio.Event()
        return self._late[method]

    @property
    def left(self) -> int:
        """Faults that did not happen yet."""
        return sum(map(len, self._faults.values()))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._below, name)
        if not callable(found) or name == "met":  # the one call that asks nothing of the store
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self._gates:
                await self._gates[name].wait()
            faults = self._faults.get(name)
            how, error = faults.pop(0) if faults else ("", None)
            if error is not None and how == "before":
                raise error
            answer = await found(*args, **kwargs)
            self.done.append((name, args))
            if name in self._late:
                await self._late[name].wait()
            if error is not None:
                raise error
            return answer

        return call


@asynccontextmanager
async def opened_with_faults(
    url: str, *workflows: Workflow[..., Any], options: RunnerOptions = QUICK_STOP
) -> AsyncIterator[tuple[Client, FaultyStore]]:
    """As `opened`, on a store that can be made to fail."""
    registry = Registry()
    for workflow in workflows:
        registry.add(workflow)
    async with store_at(url) as below:
        store = FaultyStore(below)
        worker = host_worker(store, registry, role="worker", queues=("default",), options=options)  # type: ignore[arg-type]
        await worker.start()
        try:
            yield worker.client(), store
        finally:
            await worker.stop()
