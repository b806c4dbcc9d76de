"""Maintenance ports: import and purge runs, check and repair the store, keep schedules.

Invariants: none of these changes an event, and only a purge removes events. A repair touches only what can be rebuilt
from the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.document import Document
from buoy.core.log.events import Event
from buoy.core.schedule.schedule import Schedule
from buoy.core.times import StoreTime
from buoy.ports.records import Broken, Message


class TaskFound(msgspec.Struct, frozen=True):
    """The task of a run as it was found: due from a time on, held by a runner, parked, or not there.

    `due_at` is a time of the store that takes the run in.
    """

    state: Literal["due", "held", "parked", "missing"]
    holder: RunnerId | None = None
    due_at: StoreTime | None = None


class RunCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run from elsewhere: it has ended, or is paused. `id` tells copies of one run apart.

    All its messages count as seen: only a later message wakes the run.
    `found`: the run is stored as it was found, even if it is broken. The document may then disagree with the log, and a
    foreign one has neither log nor task.
    """

    id: str
    document: Document
    events: tuple[Event, ...]
    messages: tuple[Message, ...] = ()
    generation: int = 1
    found: TaskFound | None = None


class StoreCheck(msgspec.Struct, frozen=True):
    """One thing that was looked at in a store as a whole, and whether it is as it should be.

    `by_person`: no repair helps; its text says what a person can do.
    """

    name: str
    ok: bool
    text: str
    by_person: bool = False


RefusalCause: TypeAlias = Literal[
    "full", "quota", "read_only", "not_permitted", "file_size", "no_replica", "standby", "other"
]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A store that takes no data now. `not_permitted` and `file_size` may be about the process that asked only."""

    cause: RefusalCause
    place: str
    # What the system says.
    detail: str
    free_bytes: int | None = None


class IndexTrouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """An index and the truth that disagree. `name` tells `repair` what to do.

    `waits_s`: repair it only if it is still so after that long: its writer may be about to write the rest.
    """

    name: str
    text: str
    key: str = ""
    run_id: RunId | None = None
    waits_s: float = 0.0
    # Nothing can be done about it without loss.
    mendable: bool = True
    # No trouble: nothing follows from it, and every process that meets it drops it.
    stale: bool = False


class Tombstone(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is left of a purged run: enough to tell what it was, and that its id is used up."""

    run_id: RunId
    workflow: str
    status: str
    head_seq: int
    created_at: float
    ended_at: float
    purged_at: float
    by: str | None = None
    # Of a run that could not be read: why, and the digest of the remains that were copied before.
    broken: str | None = None
    digest: str | None = None


class RawPart(msgspec.Struct, frozen=True):
    """One stored thing of a run, byte by byte."""

    name: str
    data: bytes


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """All that a store holds of a run, readable or not. `head_seq`: beyond it the log has nothing.

    `digest` shows whether anything has changed since it was read.
    """

    parts: tuple[RawPart, ...]
    head_seq: int
    holder: RunnerId | None = None
    workflow: str = ""
    created_at: float = 0.0

    @property
    def digest(self) -> str:
        found = blake2b(digest_size=16)
        for part in sorted(self.parts, key=lambda each: each.name):
            found.update(f"{len(part.name)} {part.name} {len(part.data)} ".encode() + part.data)
        return found.hexdigest()


class Archive(Protocol):
    """Whole runs: imported, and removed. Code that drives runs never uses it.

    The id of a purged run is used up: a commit that would create it again is `FencedOut`, a copy of it is refused.
    """

    async def import_run(self, copy: RunCopy) -> bool:
        """Stores a copy of a run, all of it or nothing. False: a run of that id is there already.

        After a crash the run is absent, or the same call completes it.
        """
        ...

    async def purge(self, tombstone: Tombstone) -> bool:
        """Deletes a run that ended, with all that belongs to it, except for its tombstone.

        False if there is no such run, or if it has not ended, owes something or has moved on from `head_seq`.
        """
        ...

    async def remains(self, run_id: RunId) -> Remains | None:
        """All bytes of a run, readable or not; None if the store has none."""
        ...

    async def purge_broken(self, tombstone: Tombstone, digest: str) -> bool:
        """Deletes a run that cannot be read, with all that belongs to it, except for its tombstone.

        False, and nothing is deleted, if it is not there or if its remains have another digest by now. Before the call,
        the caller makes sure of three things: the run cannot be read, no living runner holds it, and a copy of the
        remains is kept.
        """
        ...

    async def tombstone(self, run_id: RunId) -> Tombstone | None:
        """What is left of a run that was purged."""
        ...

    async def tombstones(self, after: RunId | None, limit: int) -> list[Tombstone]:
        """Tombstones of purged runs after that one, in the store's own order, at most `limit`."""
        ...

    async def add_tombstone(self, tombstone: Tombstone) -> bool:
        """Uses up the id of a run that was purged elsewhere. False: it is used here already, by a run or a tombstone.

        Nothing is deleted.
        """
        ...

    async def half_purged(self) -> list[RunId]:
        """Runs whose purge was started and not finished: purge them again."""
        ...

    async def rewrite(self, run_id: RunId, document: Document, head_seq: int) -> bool:
        """Replaces the stored document by one that was made from the log.

        False, and nothing is changed, if the log does not end at `head_seq` any more.
        """
        ...


@runtime_checkable
class CountsRequests(Protocol):
    """A store whose requests cost money. It counts those of this process, by kind: PUT, GET, LIST, DELETE."""

    @property
    def requests(self) -> dict[str, int]: ...


class IntegrityChecks(Protocol):
    """The store itself: its settings, and its indexes against what they point at. Looking changes nothing."""

    async def checks(self) -> list[StoreCheck]:
        """Schema, durability, integrity, indexes, clock: whatever this kind of store has."""
        ...

    async def refusal(self) -> Refusal | None:
        """Why the store takes no more data now, by an attempt that leaves nothing behind; None: it seems to."""
        ...

    def index_troubles(self, *, deep: bool = False) -> AsyncIterator[IndexTrouble | None]:
        """Index entries without truth, and truth without entries; None from time to time: still at work.

        `deep`: also what only a look at everything that ever ran can find.
        """
        ...

    async def recheck(self, trouble: IndexTrouble) -> bool:
        """A second look: what is under way while a store is in use looks like trouble for a moment."""
        ...

    async def repair(self, trouble: IndexTrouble) -> bool:
        """Makes the index follow the truth. False if that trouble is none any more."""
        ...


class ScheduleStore(Protocol):
    """Schedules, each with a number that counts its changes."""

    async def schedules(self) -> list[Schedule]:
        """All of them by name, those that were removed, too: their names and numbers are known."""
        ...

    async def broken(self) -> list[Broken]:
        """Schedules that cannot be read. They do not fire, and hide no other."""
        ...

    async def discard_broken(self, name: str) -> bool:
        """Deletes a schedule that cannot be read. False: there is none, or it can be read."""
        ...

    async def save_schedule(self, schedule: Schedule) -> bool:
        """Writes a schedule over the one with the number before, or a new one with number 1. False: it has changed."""
        ...


# The parts of a store that are objects of their own, and the protocol that each keeps.
PARTS: dict[str, type] = {"archive": Archive, "integrity": IntegrityChecks, "schedules": ScheduleStore}
