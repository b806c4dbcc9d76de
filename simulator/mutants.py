"""Mutants: bugs that are planted on purpose. Each breaks one promise, and the invariants must notice it.

Each names the rules that must notice it: a violation of another rule does not count, since a mutant that crashes the
engine proves nothing. `enough` bounds the hunt in seeds. A patch fails if the engine no longer has
what it replaces, or if the two do not take the same arguments. Which seed shows each on which store: see `near`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.events import Event
from buoy.ports.records import Ended, Message, Orphan, Outcome, Receipt, Released, Task, Wants, Write
from buoy.ports.store import Store

if TYPE_CHECKING:
    from simulator.world import World

_ABSENT = object()


class StaleMutant(Exception):
    """The engine has changed, and this mutant would no longer plant its bug."""


class Mutant:
    """No mutant: the store and the engine as they are. Subclasses break one promise each."""

    name = "none"
    # Found if one of these is broken.
    rules: tuple[str, ...] = ()
    enough = 0
    # The test that finds it, for one that no simulated history can show.
    test: str | None = None
    # Where it can show at all.
    stores: tuple[str, ...] = ("objects", "sqlite")

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def install(self, world: World) -> None:
        """Patches the engine."""

    def patch(self, owner: Any, name: str, value: Any) -> Any:
        """Puts something else in the place of what is there, until `remove`. What was there."""
        real = owner.__dict__.get(name, _ABSENT)
        if real is _ABSENT:
            raise StaleMutant(f"{self.name}: {owner!r} no longer has {name!r}; patch what took its place")
        _check_fits(f"{self.name}: {name}", real, value)
        self._undo.append(lambda: setattr(owner, name, real))
        setattr(owner, name, value)
        return real

    def patch_entry(self, table: dict[Any, Any], key: Any, value: Any) -> Any:
        """The same for an entry of a table."""
        if key not in table:
            raise StaleMutant(f"{self.name}: the table no longer has {key!r}; patch what took its place")
        real = table[key]
        _check_fits(f"{self.name}: {key!r}", real, value)
        self._undo.append(lambda: table.__setitem__(key, real))
        table[key] = value
        return real

    def remove(self) -> None:
        """Undoes the patches."""
        while self._undo:
            self._undo.pop()()

    # ---- between a process and its store

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        return await store.commit(writes)

    async def landed(self, store: Store, writes: Sequence[Write]) -> list[Outcome | None]:
        return await store.landed(writes)

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
        """A process purges this run."""


def _check_fits(what: str, real: Any, value: Any) -> None:
    """Refuses a replacement that is called in another way than the original."""
    if isinstance(real, property) or isinstance(value, property):
        fits = isinstance(real, property) and isinstance(value, property)
    elif callable(real) and callable(value):
        fits = inspect.iscoroutinefunction(real) == inspect.iscoroutinefunction(value) and _takes_the_same(real, value)
    else:
        fits = type(real) is type(value)
    if not fits:
        raise StaleMutant(f"{what}: the replacement {_shape(value)} does not fit {_shape(real)}; adapt the mutant")


def _takes_the_same(real: Callable[..., Any], value: Callable[..., Any]) -> bool:
    """By name and kind, but for the first parameter, which is often `self`. One that takes anything fits anything."""
    mine, theirs = (list(inspect.signature(each).parameters.values()) for each in (value, real))
    if [each.kind for each in mine[-2:]] == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return len(mine) <= 3 and bool(theirs)
    return len(mine) == len(theirs) and all(
        one.kind == other.kind and (place == 0 or one.name == other.name)
        for place, (one, other) in enumerate(zip(mine, theirs, strict=True))
    )


def _shape(value: Any) -> str:
    return f"{value!r}{inspect.signature(value)}" if callable(value) else repr(value)
