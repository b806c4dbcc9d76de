"""Ports: every way out of the engine. Adapters in `stores/` and `system.py` implement them, the wiring joins them.

Invariants that every store keeps (and `buoy.testing.contracts` checks):
- `commit` appends a run's events only if `after_seq` is its last number; else that write is `FencedOut` and changed
  nothing. One run's write is all or nothing; the runs of one call are independent of each other.
- A commit that was answered is durable. One that raised `Unavailable` may or may not have happened: the caller reads
  back `events(run, after=after_seq)` and compares the nonce of the first event.
- Exactly one task drives an active run. It is held by at most one runner, or due at a time, or parked until a message.
- `send` numbers the messages of a run 1, 2, 3... with no gaps and no losses; a dedupe id that is there already gives
  back its number. A message for a run that nobody holds makes its task due at once.
- A read that fails raises. An absent thing is None or an empty list, never the result of an error.
- A record that cannot be read hides no other: lists name it (`RunPage.broken`, `RunnerRecord.unreadable`), and calls
  that work on many records pass over it and keep it for `met`. Calls about that one record raise `CorruptLog`.
Designed so that create-if-absent and per-object compare-and-swap are enough to keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from buoy.core.events import Event
from buoy.core.ids import RunId, RunnerId
from buoy.custody import (
    Archive,
    Checkup,
    IndexTrouble,
    RawPart,
    Remains,
    RunCopy,
    StoreCheck,
    TaskFound,
    Timetable,
    Tombstone,
)
from buoy.records import (
    Beat,
    Broken,
    Command,
    CommandEnd,
    Committed,
    Ended,
    Envelope,
    Evidence,
    FencedOut,
    Held,
    LoopHeld,
    Message,
    Orphan,
    Outcome,
    Progress,
    Receipt,
    Released,
    RunnerInfo,
    RunnerRecord,
    RunPage,
    RunQuery,
    RunRecord,
    SweepHealth,
    Task,
    TaskChange,
    Wants,
    Write,
)

__all__ = [
    "Archive",
    "Beat",
    "Broken",
    "Checkup",
    "Clock",
    "Command",
    "CommandEnd",
    "Committed",
    "Ended",
    "Envelope",
    "Evidence",
    "FencedOut",
    "Held",
    "Ids",
    "IndexTrouble",
    "Liveness",
    "LoopHeld",
    "Message",
    "Orphan",
    "Outcome",
    "Progress",
    "RawPart",
    "Receipt",
    "Released",
    "Remains",
    "RunCopy",
    "RunPage",
    "RunQuery",
    "RunRecord",
    "RunnerInfo",
    "RunnerRecord",
    "Shell",
    "Store",
    "StoreCheck",
    "SweepHealth",
    "Task",
    "TaskChange",
    "TaskFound",
    "Threads",
    "Timetable",
    "Tombstone",
    "Wants",
    "Write",
]


class Store(Protocol):
    """Where logs, inboxes, tasks and runners live."""

    @property
    def url(self) -> str: ...

    @property
    def one_host(self) -> bool:
        """All processes that can open this store are on this machine: lock files prove death."""
        ...

    @property
    def keeps_time(self) -> bool:
        """Its times come from one clock of its own. Else they are those of whichever machine wrote them, and the age of
        what another machine wrote cannot be told from them."""
        ...

    @property
    def lock_dir(self) -> Path | None:
        """Where runners keep their lock files, if this store proves death so."""
        ...

    @property
    def prompt(self) -> bool:
        """A small commit is mostly done without waiting for anything: whoever has only one need not hand it over."""
        ...

    @property
    def archive(self) -> Archive:
        """The same data, for those who bring and remove whole runs."""
        ...

    @property
    def checkup(self) -> Checkup:
        """The same data, for those who look whether the store itself is sound."""
        ...

    @property
    def timetable(self) -> Timetable:
        """The same data, for those who start runs by the clock."""
        ...

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]: ...

    async def run(self, run_id: RunId) -> RunRecord | None: ...

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]: ...

    async def send(self, message: Message) -> Receipt: ...

    async def inbox(self, run_id: RunId, after: int = 0) -> list[Message]: ...

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage: ...

    async def run_ids(self, prefix: str, limit: int) -> list[RunId]:
        """Runs whose id begins with that, at most so many; the one with that very id first. Reads no document, so that
        a broken run can be named, too."""
        ...

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        """Due tasks that nobody held; from now on `runner` holds them. A runner that is gone gets none."""
        ...

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        """Gives a task back without an event, or ends that of a run that ended. False if `runner` does not hold it,
        or if the log does not end at `head_seq`: then the run moved on, and what the caller knows of it is stale.

        A run may end and keep its task for a while: as long as something is owed to others (see `engine.duties`).
        """
        ...

    async def pokes(self, runner: RunnerId) -> list[RunId]:
        """Runs that `runner` holds and that got a message which it has not yet seen."""
        ...

    async def seen(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        """The owner has looked at the inbox up to this number."""
        ...

    async def register(self, info: RunnerInfo) -> None: ...

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        """False: the runner was declared gone (or is unknown) and must stop."""
        ...

    async def runners(self, *, gone: bool = False) -> list[RunnerRecord]:
        """The living; with `gone` also the latest of the dead. One whose record cannot be read is among the living."""
        ...

    async def unregistered(self) -> list[RunnerId]:
        """Runners that began to register and have no record (yet). Their process may have been killed."""
        ...

    def met(self) -> tuple[Broken, ...]:
        """What this process met and could not read. Each is told once, unless it is unreadable in another way."""
        ...

    async def suspect(self, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
        """Notes that its last beat is still that one: the first of two looks. The next beat clears it.

        Gives the record with the note; a note about the same beat is left as it is. None: it has beaten since, is gone
        or unknown, and nothing was noted.
        """
        ...

    async def bury(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        """Declares a runner gone, for good, and makes due whatever it held. The number of runs released.

        With `beat_number` only if its last beat is still that one: None if it has beaten since, and nothing happened.
        """
        ...

    async def orphans(self, limit: int) -> list[Orphan]:
        """What `bury` and the index rules could not see: looked for by every sweep."""
        ...

    async def adopt(self, orphan: Orphan) -> bool:
        """Makes an orphan's task due, whoever held it. False if it is none any more."""
        ...

    async def define(self, version: str, data: bytes) -> None:
        """Keeps a definition under the hash of its content. The same one again does nothing more."""
        ...

    async def definition(self, version: str) -> bytes | None: ...

    async def now(self) -> float: ...

    async def changed(self, timeout_s: float) -> bool:
        """Waits until something may have changed, or for that long. A hint: missing one costs latency only."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Wall time for people and timers, monotonic time for ages."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...


class Ids(Protocol):
    """New ids and nonces. Unique without asking anybody."""

    def new(self, prefix: str = "") -> str: ...

    def nonce(self) -> str: ...


class Liveness(Protocol):
    """Proof of life and death on this host."""

    def announce(self, runner: RunnerId) -> None:
        """Holds this runner's lock until the process ends."""
        ...

    def withdraw(self, runner: RunnerId) -> None: ...

    def sees(self, record: RunnerRecord) -> bool:
        """Whether that runner's end would show from here. Then its silence means nothing: it may be busy or stopped."""
        ...

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        """Why the runner is certainly gone, or None if that cannot be proven from here."""
        ...

    def stopped(self, record: RunnerRecord) -> bool:
        """Whether its process is seen to be stopped by a signal (SIGSTOP). False also if that cannot be seen."""
        ...

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        """The same for a runner of which only the id is known, since it has no record that can be read."""
        ...

    def doubt(self, record: RunnerRecord) -> str | None:
        """Why it cannot be told from here whether that runner lives; None if it can, or if beats must tell."""
        ...


class Threads(Protocol):
    """The only way to other threads: sync steps, sync workflows and the beat."""

    def run(self, work: Callable[[], None], name: str) -> None: ...


class Shell(Protocol):
    """Runs commands as process groups that end with this process, however it ends."""

    @property
    def slots(self) -> int:
        """How many commands this machine can well run at the same time."""
        ...

    async def run(self, command: Command) -> CommandEnd:
        """Until it ended. A cancellation of this call stops the command, and is told when it has ended."""
        ...
