"""Planted mutants: each breaks one promise of the store or the engine, and the invariants must find it.

`SEEDS_ENOUGH` says within how many seeds; a test holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from buoy.core.ids import RunId
from buoy.engine.ledger import Ledger
from buoy.ports import Committed, Message, Outcome, Store, Write


class Mutant:
    """No mutant: the store and the engine as they are. Subclasses break one promise each."""

    name = "none"

    def install(self) -> None:
        """Patches the engine."""

    def remove(self) -> None:
        """Undoes the patches."""

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        return await store.commit(writes)

    def inbox(self, run_id: RunId, messages: list[Message]) -> list[Message]:
        return messages

    def seen(self, run_id: RunId, number: int) -> None:
        """A runner says that it has looked at messages up to this number."""


class NoFencing(Mutant):
    """The store accepts a stale append: it gives the events the next free numbers."""

    name = "no-fencing"

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        # A writer that was let through once knows wrong numbers from then on.
        writes = [_renumbered(write, write.after_seq) for write in writes]
        outcomes = await store.commit(writes)
        for place, write in enumerate(writes):
            for _ in range(5):
                if isinstance(outcomes[place], Committed) or not write.after_seq:
                    break
                outcomes[place] = (await store.commit([_renumbered(write, outcomes[place].head_seq)]))[0]
        return outcomes


def _renumbered(write: Write, after_seq: int) -> Write:
    behind = after_seq + 1 - write.events[0].seq
    moved = tuple(msgspec.structs.replace(event, seq=event.seq + behind) for event in write.events)
    return msgspec.structs.replace(write, after_seq=after_seq, events=moved)


class ForgetInbox(Mutant):
    """A message that somebody looked at is never shown again, although nobody consumed it."""

    name = "forget-inbox"

    def __init__(self) -> None:
        self._seen: dict[RunId, int] = {}

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = await store.commit(writes)
        for write in writes:
            self.seen(write.run_id, write.seen)
        return outcomes

    def inbox(self, run_id: RunId, messages: list[Message]) -> list[Message]:
        return [message for message in messages if message.number > self._seen.get(run_id, 0)]

    def seen(self, run_id: RunId, number: int) -> None:
        self._seen[run_id] = max(number, self._seen.get(run_id, 0))


class EffectsBeforeCommit(Mutant):
    """Bodies and alarms start at once, not when the commit that they rest on is durable."""

    name = "effects-before-commit"

    def install(self) -> None:
        self._real = Ledger.after_commit

        def at_once(ledger: Ledger, effect: Callable[[], None]) -> None:
            effect()

        _patch("after_commit", at_once)

    def remove(self) -> None:
        _patch("after_commit", self._real)


def _patch(name: str, function: Any) -> None:
    assert hasattr(Ledger, name), f"the engine has no {name} any more: the mutant would change nothing"
    setattr(Ledger, name, function)


MUTANTS: dict[str, type[Mutant]] = {each.name: each for each in (NoFencing, EffectsBeforeCommit, ForgetInbox)}
SEEDS_ENOUGH = {"no-fencing": 50, "effects-before-commit": 5, "forget-inbox": 50}
