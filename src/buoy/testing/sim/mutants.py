"""Mutants: bugs that are planted on purpose. Each breaks one promise, and the invariants must notice it.

`enough` says within how many seeds; a test holds it. A patch of something that the engine does not have any more fails:
a mutant that changes nothing would prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from buoy.core.events import Event
from buoy.core.ids import RunId, RunnerId
from buoy.ports import Ended, Message, Orphan, Outcome, Receipt, Released, Store, Task, Wants, Write

if TYPE_CHECKING:
    from buoy.testing.sim.world import World

_ABSENT = object()


class Mutant:
    """No mutant: the store and the engine as they are. Subclasses break one promise each."""

    name = "none"
    enough = 0
    # Where it can show at all.
    stores: tuple[str, ...] = ("objects", "sqlite")

    def __init__(self) -> None:
        self._patched: list[tuple[Any, str, Any]] = []

    def install(self, world: World) -> None:
        """Patches the engine."""

    def patch(self, owner: Any, name: str, value: Any) -> Any:
        """Puts something else in the place of what is there, until `remove`. What was there."""
        real = owner.__dict__.get(name, _ABSENT)
        assert real is not _ABSENT, f"{owner!r} has no {name} any more: the mutant would change nothing"
        self._patched.append((owner, name, real))
        setattr(owner, name, value)
        return real

    def remove(self) -> None:
        """Undoes the patches."""
        for owner, name, real in reversed(self._patched):
            setattr(owner, name, real)
        self._patched.clear()

    # ---- between a process and its store

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        return await store.commit(writes)

    async def events(self, store: Store, run_id: RunId, after: int, limit: int | None) -> list[Event]:
        return await store.events(run_id, after, limit)

    async def send(self, store: Store, message: Message) -> Receipt:
        return await store.send(message)

    def inbox(self, run_id: RunId, messages: list[Message]) -> list[Message]:
        return messages

    async def claim_tasks(self, store: Store, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        return await store.claim_tasks(runner, wants, limit)

    def release(self, change: Released | Ended) -> Released | Ended:
        return change

    def orphans(self, found: list[Orphan]) -> list[Orphan]:
        return found

    def seen(self, run_id: RunId, number: int) -> None:
        """A runner says that it has looked at messages up to this number."""

    def purges(self, run_id: RunId) -> None:
        """Somebody purges this run."""
