"""Certainty mutants: planted bugs of what a writer concludes from an answer, or from none.

What a store concludes wrongly about a task its runner finds out later, when it looks what it holds. Where a planted bug
is to show what the store alone is worth, the runner does not look again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from buoy.engine.services import commits as commits_module
from buoy.errors import Unavailable
from buoy.ports.records import Committed, FencedOut, Outcome, Write
from buoy.ports.store import Store
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Changed, Exists
from buoy.stores.objects.commit import Commits
from buoy.stores.objects.records import LogObject, StoredRun, saved_view, state_object
from buoy.stores.objects.runs import Runs
from simulator.holder_mutants import NeverLookAgain
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


class ExistsIsLost(NeverLookAgain):
    """A commit that is refused as existing is lost, whatever stands there, and if nothing does."""

    name = "exists-is-lost"
    enough = 60
    stores = ("objects",)

    def install(self, world: World) -> None:
        async def create(self: Commits, write: Write, log: LogObject) -> LogObject | None:
            try:
                await self._bucket.create(layout.log_key(write.run_id, write.after_seq + 1), msgspec.json.encode(log))
            except Exists:
                return None
            return log

        self.patch(Commits, "_create", create)
        super().install(world)


class RefusedIsLost(NeverLookAgain):
    """A change of a task that is refused is another's, though it may be this very change, sent twice."""

    name = "refused-is-lost"
    enough = 60
    stores = ("objects",)

    def install(self, world: World) -> None:
        async def save(self: Runs, view: StoredRun, *, alike: bool = False) -> StoredRun:
            saved = state_object(view)
            data, key = msgspec.json.encode(saved), layout.state_key(view.run_id)
            bucket, seen, since = self._bucket, view.etag, self._clock.monotonic()
            try:
                etag = await (bucket.create(key, data) if seen is None else bucket.replace(key, data, seen))
            except Exists as error:
                raise Changed(key) from error
            return self.remember(saved_view(view.run_id, saved, etag), since=since)

        self.patch(Runs, "save", save)
        super().install(world)


class NoAnswerIsLost(NeverLookAgain):
    """A change of a task that gets no answer counts as not taken in."""

    name = "no-answer-is-lost"
    enough = 60
    stores = ("objects",)

    def install(self, world: World) -> None:
        async def save_for_sure(self: Runs, view: StoredRun, *, alike: bool) -> StoredRun | None:
            try:
                return await self.save(view, alike=alike)
            except Unavailable:
                return None

        self.patch(Runs, "_save_for_sure", save_for_sure)
        super().install(world)


CERTAINTY_MUTANTS: tuple[type[Mutant], ...] = (
    LostIsCommitted,
    LandedByNumber,
    ExistsIsLost,
    RefusedIsLost,
    NoAnswerIsLost,
)
