"""The gate: the store as the process under test sees it. It counts what the engine writes, and ends the process there.

*Before* a write the process dies with nothing of it durable; *after* it all of it is durable, and the engine never
hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.ports.records import Ended, Message, Outcome, Receipt, Released, Write
from buoy.ports.store import Store
from buoy.testing.crashtest.watch import BodyWatch
from buoy.testing.local_host import Hints, LocalStore
from buoy.testing.skipping import Outside

Phase = Literal["before", "after", "twice", "cancel", "undo"]

_ENDS = (
    e.StepCompleted,
    e.StepFailed,
    e.ModuleCompleted,
    e.ModuleFailed,
    e.CompensationCompleted,
    e.CompensationFailed,
)
_TWICE = 2
# The leaf of a compensation: that of its step, with this behind it.
COMPENSATION = "!compensation"
_UNDONE = (e.CompensationCompleted, e.CompensationFailed)


class Point(msgspec.Struct, frozen=True):
    """Where a scenario differs from the reference: at the n-th write.

    `before`, `after`: the process dies before or after it. `twice`: it dies after it, and the next process after its
    first write. `cancel`: no process dies, and the run is asked to cancel. `undo`: the same, and the process dies
    before the end of the first compensation is durable.
    """

    number: int
    phase: Phase

    def of_process(self, number: int) -> Point | None:
        """What this means for the first, second... process of the scenario."""
        if self.phase == "twice" and number <= _TWICE:
            return Point(self.number if number == 1 else 1, "after")
        return self if number == 1 else None


class Gate(LocalStore):
    """A store that may be the end of its process. `die` returns only where a process cannot really be killed."""

    def __init__(
        self,
        store: Store,
        hints: Hints,
        outside: Outside,
        watch: BodyWatch,
        point: Point | None,
        die: Callable[[], None],
    ) -> None:
        super().__init__(store, hints, outside)
        self._watch = watch
        self._cancelled = False
        self._point = point
        self._die = die
        self.writes = 0
        self.on_cancel: Callable[[], None] = lambda: None

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        undone = any(isinstance(event.body, _UNDONE) for write in writes for event in write.events)
        number = await self._begin("; ".join(map(describe, writes)), undone=undone)
        outcomes = await super().commit(writes)
        for write in writes:
            for event in write.events:
                self._note_durable(write.run_id, event.body)
        await self._end(number)
        return outcomes

    def _note_durable(self, run_id: RunId, body: e.Body) -> None:
        if isinstance(body, _ENDS):
            leaf = f"{body.leaf}{COMPENSATION}" if isinstance(body, _UNDONE) else body.leaf
            self._watch.tell("durable", run=run_id, leaf=leaf)
        elif isinstance(body, e.BranchCreated):
            self._watch.tell("hidden", run=run_id)
        elif isinstance(body, e.Claimed):
            self._watch.tell("claimed", run=run_id, text=body.cause)

    async def send(self, message: Message) -> Receipt:
        number = await self._begin(f"{message.kind} to {message.run_id}")
        receipt = await super().send(message)
        await self._end(number)
        return receipt

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        number = await self._begin("the task is given back" if isinstance(change, Released) else "the task ends")
        done = await super().release(run_id, runner, change, head_seq)
        await self._end(number)
        return done

    async def _begin(self, text: str, *, undone: bool = False) -> int:
        self.writes += 1
        number = self.writes
        self._watch.tell("write", number=number, text=text)
        if self._point == Point(number, "before") or (undone and self._undo_ends()):
            await self._crash(f"before {text}")
        return number

    def _undo_ends(self) -> bool:
        """Whether the first compensation after the request is where this process ends."""
        return self._cancelled and self._point is not None and self._point.phase == "undo"

    async def _end(self, number: int) -> None:
        if self._point == Point(number, "after"):
            await self._crash("after it")
        elif self._point in (Point(number, "cancel"), Point(number, "undo")):
            self._cancelled = True
            self.on_cancel()

    async def _crash(self, text: str) -> None:
        self._watch.tell("crash", number=self.writes, text=text, at=self.hints.clock.now())
        self._die()
        await asyncio.get_running_loop().create_future()


def describe(write: Write) -> str:
    """A commit in a few words: its events, with the leaf that they are about."""
    return ", ".join(_word(event.body) for event in write.events if not isinstance(event.body, e.Claimed)) or "claimed"


def _word(body: e.Body) -> str:
    leaf = getattr(body, "leaf", None)
    name = e.event_name(type(body))
    return name if leaf is None else f"{name} {leaf}"
