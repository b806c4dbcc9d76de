"""The store port: where logs, inboxes, tasks and runners live. Adapters are in `stores/`.

`Store` is five roles: `RunLog`, `Inbox`, `TaskQueue`, `RunnerRegistry` and `Definitions`, and what all of them share.

Invariants that every store keeps (and `buoy.testing.contracts` checks):
- `commit` appends a run's events only if `after_seq` is its last number; else that write is `FencedOut` and changed
  nothing. One run's write is all or nothing; the runs of one call are independent of each other.
- A commit that was answered is durable. One that raised `Unavailable` may or may not have happened: the caller asks
  `landed`, which compares the nonce of what is there (`engine.services.commits` does that for every caller).
- Exactly one task drives an active run. It is held by at most one runner, or due at a time, or parked until a message.
- `send` numbers the messages of a run 1, 2, 3... with no gaps and no losses; a dedupe id that is there already gives
  back its number. A message for a run without a holder makes its task due at once.
- A read that fails raises. An absent thing is None or an empty list, never the result of an error.
- A record that cannot be read hides no other: lists name it (`RunPage.broken`, `RunnerRecord.unreadable`), and calls
  that work on many records pass over it and keep it for `met`. Calls about that one record raise `CorruptLog`.
Designed so that create-if-absent and per-object compare-and-swap are enough to keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.events import Event
from buoy.core.times import StoreTime
from buoy.ports.maintenance import (
    Archive,
    IntegrityChecks,
    ScheduleStore,
)
from buoy.ports.pace import Lanes, Pace
from buoy.ports.records import (
    Beat,
    Broken,
    Ended,
    Evidence,
    Message,
    Orphan,
    Outcome,
    Receipt,
    Released,
    RunnerInfo,
    RunnerRecord,
    RunPage,
    RunQuery,
    RunRecord,
    Task,
    Wants,
    Write,
)
from buoy.ports.tokens import TokenStore


class RunLog(Protocol):
    """Logs and documents of runs. An append is the commit point, and the fence."""

    @property
    def commits_inline(self) -> bool:
        """`commit` of one write usually completes without suspending, so that callers may run it inline."""

    @property
    def lanes(self) -> Lanes:
        """How many groups of commits may be under way at once, and how large they may be."""

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]: ...

    async def landed(self, writes: Sequence[Write]) -> list[Outcome | None]:
        """Outcome of writes without a clear answer: the write itself is in the log (`Committed`), another one is
        (`FencedOut`), or neither (None). One round trip for the whole group."""

    async def run(self, run_id: RunId) -> RunRecord | None: ...

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]: ...

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage: ...

    async def counts(self, query: RunQuery | None = None) -> dict[str, int]:
        """Number of runs by status. A store that must read a run to know how it ended reads the newest `COUNTED_MAX`.
        It counts earlier ones as `ENDED`, a status that no run has."""
        ...

    async def moved(self, cursor: str | None = None, limit: int = 1_000) -> tuple[list[RunId], str]:
        """Runs that may have changed since the cursor, and the next cursor; None: begin now. Writers pay nothing for
        it. A hint: it may repeat a run, name an unchanged one, or miss one. A caller that needs certainty reads the
        runs."""
        ...

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        """Runs whose id begins with `prefix`, at most `limit`; an exact match comes first. Reads no document, so a
        broken run can be named, too."""
        ...


class Inbox(Protocol):
    """Messages to runs: numbered by the store, each with a dedupe id."""

    async def send(self, message: Message) -> Receipt: ...

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        """The messages after that number, in order; of those the first `limit`."""
        ...

    async def unread_runs(self, runner: RunnerId) -> list[RunId]:
        """Runs that `runner` holds and that got a message which it has not yet seen."""
        ...

    async def mark_read(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        """The owner has looked at the inbox up to this number."""
        ...


class TaskQueue(Protocol):
    """One task for each active run: held by a runner, due at a time, or parked until a message."""

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        """Due tasks without a holder; from now on `runner` holds them. A runner that is gone gets none."""
        ...

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        """Gives a task back without an event, or ends the task of an ended run. False if `runner` does not hold it, or
        if the log does not end at `head_seq`: then the run has changed, and the caller's view is stale.

        An ended run keeps its task as long as it owes something to other runs (see `engine.run.owed`).
        """
        ...

    async def orphans(self, limit: int) -> list[Orphan]:
        """Runs whose task is held by an unknown runner, or is missing. Every sweep looks for them."""
        ...

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        """Makes the task of an orphan due. False if the run is no orphan any more."""
        ...


class RunnerRegistry(Protocol):
    """Runners and their heartbeats. Dead is final."""

    async def register(self, info: RunnerInfo) -> None: ...

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        """False: the runner was declared gone (or is unknown) and must stop."""
        ...

    async def runners(self, *, gone: int = 0, glance: bool = False) -> list[RunnerRecord]:
        """Living runners, then the newest `gone` ones that are gone. A runner with an unreadable record counts as
        living.

        The cost depends on these alone, not on how many runners there ever were. Changes nothing. `glance`: for an
        observer that looks again and again. Where reads are billed, a runner that keeps beating is then shown with an
        older record (`beaten`); one that misses a beat is shown as it is.
        """
        ...

    async def retire(self, keep: int, limit: int) -> int:
        """Removes at most `limit` records of runners that are gone and hold nothing, except the newest `keep`. Returns
        the number removed. A runner without a record is unknown: its beat is refused."""
        ...

    async def unregistered(self) -> list[RunnerId]:
        """Runners that began to register and have no record (yet). Their process may have been killed."""
        ...

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        """Notes that `beat_number` is still its last beat: the first of two looks. The next beat clears the note.

        Returns the record with the note, or with an earlier note about the same beat. None: the runner has beaten
        since, is gone or unknown, and nothing was noted.
        """
        ...

    async def declare_dead(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        """Declares a runner gone, permanently, and makes due whatever it held. Returns the number of runs released.

        With `beat_number` only if its last beat is still that one: None if it has beaten since, and nothing happened.
        """
        ...


class Definitions(Protocol):
    """Definitions of workflows, each under the hash of its content."""

    async def define(self, version: str, data: bytes) -> None:
        """Keeps a definition under the hash of its content. The same one again has no further effect."""
        ...

    async def definition(self, version: str) -> bytes | None: ...


class Store(RunLog, Inbox, TaskQueue, RunnerRegistry, Definitions, Protocol):
    """All five roles of one place, its clock, and the ways to maintain it."""

    @property
    def name(self) -> str:
        """Which store it is, for people: its URL without secrets. Two stores of one place have the same name."""
        ...

    @property
    def single_host(self) -> bool:
        """All processes that can open this store are on this machine: lock files prove death."""

    @property
    def self_fencing(self) -> bool:
        """Whether a runner stops its work when its beats are not confirmed, before others declare it dead."""

    @property
    def pace(self) -> Pace:
        """How often to look without a hint. A store with a slow pace gives a hint of all that a look would find."""

    @property
    def has_clock(self) -> bool:
        """Whether it dates its records by a clock of its own. If not, their times are those of the machines that wrote
        them: never compare the times of two machines."""

    @property
    def lock_dir(self) -> Path | None:
        """Where runners keep their lock files, if this store proves death so."""

    @property
    def archive(self) -> Archive:
        """The same data, for code that imports and removes whole runs."""

    @property
    def integrity(self) -> IntegrityChecks:
        """The same data, for checks of the store itself."""

    @property
    def schedules(self) -> ScheduleStore:
        """The same data, for schedules."""

    @property
    def tokens(self) -> TokenStore:
        """The same data, for a server that authenticates requests. A store behind a server does not show it."""

    def met(self) -> tuple[Broken, ...]:
        """What this process met and could not read. Each is reported once, unless it is unreadable in another way."""
        ...

    async def now(self) -> StoreTime:
        """The store's time: by its own clock, or by that of this process."""
        ...

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most `timeout_s`. A hint: a missed change costs only latency."""
        ...

    async def reopen(self) -> Store:
        """Another connection to the same data, with the same clock: for a thread or a task that must not wait for this
        one. The caller closes it."""
        ...

    async def close(self) -> None: ...
