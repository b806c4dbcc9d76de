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
Designed so that create-if-absent and per-object compare-and-swap are enough to keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from buoy.core.document import Document
from buoy.core.events import Event
from buoy.core.ids import RunId, RunnerId, TaskId

Evidence: TypeAlias = dict[str, str | int | float | bool | None]


class Held(msgspec.Struct, frozen=True, tag="held"):
    """After the commit this runner holds the run's task."""

    runner: RunnerId


class Released(msgspec.Struct, frozen=True, tag="released"):
    """After the commit nobody holds the task; it is due at that time (None: parked until a message comes).

    `seen` is the highest message number that was looked at: a later message makes the task due at once.
    """

    due_at: float | None
    seen: int = 0
    cause: str = "woken"


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """After the commit the run is over and has no task."""


TaskChange: TypeAlias = Held | Released | Ended


class Write(msgspec.Struct, frozen=True):
    """One run's commit. `task` None leaves the task as it is."""

    run_id: RunId
    after_seq: int
    events: tuple[Event, ...]
    document: Document
    task: TaskChange | None = None
    # Highest message number that the writer has looked at, so that it is not poked for it again.
    seen: int = 0


class Committed(msgspec.Struct, frozen=True):
    head_seq: int


class FencedOut(msgspec.Struct, frozen=True):
    """Somebody else appended meanwhile (or the run exists already, for `after_seq` 0)."""

    head_seq: int


Outcome: TypeAlias = Committed | FencedOut


class Envelope(msgspec.Struct, frozen=True):
    """What belongs to a run's document but not to its log: who drives it."""

    orchestrator_task_id: TaskId | None
    generation: int


class RunRecord(msgspec.Struct, frozen=True):
    """A run as the store has it now. `holder` is who holds its task; `inbox_head` the number of its last message."""

    document: Document
    envelope: Envelope
    holder: RunnerId | None = None
    due_at: float | None = None
    inbox_head: int = 0


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something for a run's inbox. `kind`: signal, answer, pause, resume, cancel, jump, step_result, child_finished."""

    run_id: RunId
    kind: str
    dedupe: str
    body: msgspec.Raw
    sent_at: float = 0.0
    # Given by the store; 0 before it was sent.
    number: int = 0
    by: str | None = None


class Receipt(msgspec.Struct, frozen=True):
    """`duplicate`: a message with this dedupe id was there already, under this number."""

    number: int
    duplicate: bool = False


class Task(msgspec.Struct, frozen=True):
    """A run to drive. `cause` and `evidence` go into the `claimed` event."""

    id: TaskId
    run_id: RunId
    workflow: str
    queue: str = "default"
    due_at: float = 0.0
    cause: str = "woken"
    evidence: Evidence = {}


class Wants(msgspec.Struct, frozen=True):
    """Which tasks a runner can take. `workflows` None: any."""

    queues: tuple[str, ...] = ("default",)
    workflows: tuple[str, ...] | None = None
    stack: str | None = None
    env: str | None = None


class RunnerInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who a runner is. Proof of its death needs host, boot, PID namespace, pid and start time together."""

    id: RunnerId
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    process_started: str
    nonce: str
    buoy_version: str = ""
    stack: str | None = None
    env: str | None = None
    queues: tuple[str, ...] = ("default",)
    # name -> versions that this runner has code for
    workflows: dict[str, tuple[str, ...]] = {}
    # "worker", or "client" for a process that only ran something of its own
    role: str = "worker"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a leaf has come, in its own words. Not durable: it travels with the beats."""

    at: float
    done: float | None = None
    total: float | None = None
    note: str = ""
    leaf: str = ""


class Beat(msgspec.Struct, frozen=True):
    """One sign of life. `number` only ever grows."""

    number: int
    holding: int = 0
    errors: int = 0
    last_error: str | None = None
    progress: dict[RunId, Progress] = {}


class RunnerRecord(msgspec.Struct, frozen=True):
    """A runner as the store has it. Times are the store's."""

    info: RunnerInfo
    registered_at: float
    beat_at: float
    beat: Beat
    # Set once, never cleared: dead is final. "stopped" for a runner that said good-bye.
    gone_at: float | None = None
    gone_why: str | None = None
    # First of the two looks across hosts.
    suspected_at: float | None = None
    suspected_beat: int | None = None


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest first."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    holder: RunnerId | None = None


class RunPage(msgspec.Struct, frozen=True):
    """`cursor` None: that was the last page."""

    runs: tuple[RunRecord, ...]
    cursor: str | None = None


class Orphan(msgspec.Struct, frozen=True):
    """An active run whose task is missing, or held by a runner that is gone or was never registered."""

    run_id: RunId
    holder: RunnerId | None
    why: str


class Store(Protocol):
    """Where logs, inboxes, tasks and runners live."""

    @property
    def url(self) -> str: ...

    @property
    def one_host(self) -> bool:
        """All processes that can open this store are on this machine: lock files prove death."""
        ...

    @property
    def lock_dir(self) -> Path | None:
        """Where runners keep their lock files, if this store proves death so."""
        ...

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]: ...

    async def run(self, run_id: RunId) -> RunRecord | None: ...

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]: ...

    async def send(self, message: Message) -> Receipt: ...

    async def inbox(self, run_id: RunId, after: int = 0) -> list[Message]: ...

    async def find_runs(self, query: RunQuery, cursor: str | None = None, limit: int = 100) -> RunPage: ...

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        """Due tasks that nobody held; from now on `runner` holds them. A runner that is gone gets none."""
        ...

    async def release(self, run_id: RunId, runner: RunnerId, change: Released) -> bool:
        """Gives a task back without an event. False if `runner` does not hold it."""
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

    async def runners(self, *, gone: bool = False) -> list[RunnerRecord]: ...

    async def bury(self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence) -> int:
        """Declares a runner gone, for good, and makes due whatever it held. The number of runs released."""
        ...

    async def orphans(self, limit: int) -> list[Orphan]:
        """What `bury` and the index rules could not see: looked for by every sweep."""
        ...

    async def adopt(self, orphan: Orphan) -> bool:
        """Makes an orphan's task due, whoever held it. False if it is none any more."""
        ...

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

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        """Why the runner is certainly gone, or None if that cannot be proven from here."""
        ...


class Threads(Protocol):
    """The only way to other threads: sync steps, sync workflows and the beat."""

    def run(self, work: Callable[[], None], name: str) -> None: ...
