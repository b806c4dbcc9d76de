"""Certainty mutants: planted bugs of what a writer concludes from an answer, or from none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from buoy.engine.services import commits as commits_module
from buoy.errors import Unavailable
from buoy.ports.records import Committed, FencedOut, Outcome, Write
from buoy.ports.store import Store
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class LostIsCommitted(Mutant):
    """A commit that gets no answer counts as durable."""

    name = "lost-is-committed"
    rules = ("effect before commit", "no acknowledged start is lost")
    enough = 20

    def install(self, world: World) -> None:
        async def attempt(store: Store, writes: Sequence[Write], known: dict[int, Outcome]) -> None:
            try:
                await real(store, writes, known)
            except Unavailable:
                for place, write in enumerate(writes):
                    known.setdefault(place, Committed(write.events[-1].seq))

        real = self.patch(commits_module, "_try", attempt)


class LandedByNumber(Mutant):
    """Who asks what stands in the place of its write compares the number alone, and not the nonce."""

    name = "landed-by-number"
    rules = ("effect before commit", "one writer at a time", "executed twice at once")
    enough = 60

    async def landed(self, store: Store, writes: Sequence[Write]) -> list[Outcome | None]:
        found = await store.landed(writes)
        return [
            Committed(write.events[-1].seq) if isinstance(outcome, FencedOut) else outcome
            for write, outcome in zip(writes, found, strict=True)
        ]


CERTAINTY_MUTANTS: tuple[type[Mutant], ...] = (
    LostIsCommitted,
    LandedByNumber,
)
