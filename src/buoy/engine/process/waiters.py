"""Waiters: futures of callers in this process that wait for a run to be durable, or to end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.state import State

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution


ENDS_KEPT_MAX = 2_000
# A result may have a MiB: by their number alone they could take 2 GiB.
ENDS_KEPT_BYTES_MAX = 32 * 2**20


class Waiters:
    """Futures by run, and the last ends, for callers that ask a moment after the end."""

    def __init__(self) -> None:
        self._last: OrderedDict[RunId, tuple[State, e.Ending]] = OrderedDict()
        self._kept_bytes = 0
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

    def failed(self, run_id: RunId, error: Exception) -> None:
        """The run could not be created."""
        waiter = self._creating.pop(run_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def end(self, run_id: RunId) -> asyncio.Future[Execution | None]:
        """Resolves to the execution when the run ends, to None when it leaves this process."""
        waiter: asyncio.Future[Execution | None] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run_id, []).append(waiter)
        return waiter

    def keep(self, state: State, ending: e.Ending) -> None:
        """Remembers an end for a while. Keeps only the part of the state that a result needs."""
        kept = State(run_id=state.run_id, status=state.status, created=state.created, error=state.error)
        kept.head_seq = state.head_seq
        before = self._last.pop(state.run_id, None)
        self._last[state.run_id] = (kept, ending)
        self._kept_bytes += _size(kept, ending) - (0 if before is None else _size(*before))
        while len(self._last) > ENDS_KEPT_MAX or self._kept_bytes > ENDS_KEPT_BYTES_MAX:
            self._kept_bytes -= _size(*self._last.popitem(last=False)[1])

    def kept(self, run_id: RunId, head_seq: int) -> tuple[State, e.Ending] | None:
        """The end of a run, if the log still ends there. A run that continued since then has another end."""
        found = self._last.get(run_id)
        return found if found is not None and found[0].head_seq == head_seq else None

    def tell(self, run_id: RunId, end: Execution | None) -> None:
        """The run ended, or left this process."""
        self.created(run_id, False)
        for waiter in self._ends.pop(run_id, ()):
            if not waiter.done():
                waiter.set_result(end)


def _size(state: State, ending: e.Ending) -> int:
    """The bytes of an end that can be many: what the run was given, and what came of it."""
    given = 0 if state.created is None else len(bytes(state.created.input))
    if isinstance(ending, e.WorkflowCompleted):
        return given + len(bytes(ending.result)) + len(bytes(ending.next_input))
    return given
