"""Records: what goes through the ports, as frozen structs. Their meaning is part of the contract of each port.

Invariant: times of records are the store's (`StoreTime`); documents and events in them carry the run's (`core.times`).
Absent on purpose: any behaviour.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from buoy.core.ids import RunId, RunnerId, TaskId
from buoy.core.log.document import Document
from buoy.core.log.events import Event
from buoy.core.times import StoreTime
from buoy.ports.batch import AllocationPlace

Evidence: TypeAlias = dict[str, str | int | float | bool | None]
# How the end of a runner is proven: by its lock file, by its process (same host, boot and PID namespace), by two looks
# at its beats, or by the scheduler that gave it its allocation.
Proof: TypeAlias = Literal["lock", "process", "beats", "allocation"]


class Held(msgspec.Struct, frozen=True, tag="held"):
    """After the commit this runner holds the run's task."""

    runner: RunnerId


class Released(msgspec.Struct, frozen=True, tag="released"):
    """After the commit no runner holds the task; it is due at that time (None: parked until a message comes).

    `due_at` and `now` are of one clock, the one that the writer used; `now` is what that clock said. `due_at <= now`
    means at once, for every reader; unless `by_clock`, on a store without a clock: then each reader asks its own. Else
    a store with a clock of its own makes the task due when as much time has passed there.
    `seen` is the highest message number that was looked at: a later message makes the task due at once.
    """

    due_at: float | None
    now: float
    seen: int = 0
    cause: str = "woken"
    evidence: Evidence = {}
    by_clock: bool = False


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """After the commit the run is over and has no task."""


TaskChange: TypeAlias = Held | Released | Ended


class Write(msgspec.Struct, frozen=True, gc=False):
    """One run's commit. `task` None leaves the task as it is."""

    run_id: RunId
    after_seq: int
    events: tuple[Event, ...]
    document: Document
    task: TaskChange | None = None
    # Highest message number that the writer has looked at, so that it is not poked for it again.
    seen: int = 0


class Committed(msgspec.Struct, frozen=True, gc=False):
    head_seq: int


class FencedOut(msgspec.Struct, frozen=True):
    """Another writer appended in between (or the run exists already, for `after_seq` 0)."""

    head_seq: int


Outcome: TypeAlias = Committed | FencedOut


class Envelope(msgspec.Struct, frozen=True):
    """What belongs to a run's document but not to its log: who drives it."""

    orchestrator_task_id: TaskId | None
    generation: int


class RunRecord(msgspec.Struct, frozen=True):
    """A run as the store has it now. `holder` is who holds its task; `inbox_head` the number of its last message.

    In a list `inbox_head` may be the last number that an owner has looked at, if there is no unread message.

    `updated_at`: when the store took its last commit. The document's own times are those of the run.
    """

    document: Document
    envelope: Envelope
    updated_at: StoreTime
    holder: RunnerId | None = None
    due_at: StoreTime | None = None
    inbox_head: int = 0
    # False: no runner will ever drive it. Right for a run that ended, a trouble for any other.
    has_task: bool = True


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something for a run's inbox.

    `kind`: signal, answer, pause, resume, cancel, jump, step_result, child_finished, jobs, cluster.
    """

    run_id: RunId
    kind: str
    dedupe: str
    body: msgspec.Raw
    sent_at: StoreTime = StoreTime(0.0)  # a store with a clock of its own sets it
    number: int = 0  # given by the store; 0 before it was sent
    by: str | None = None


class Receipt(msgspec.Struct, frozen=True):
    """`duplicate`: a message with this dedupe id was there already, under this number."""

    number: int
    duplicate: bool = False


class Task(msgspec.Struct, frozen=True):
    """A run to drive. `cause` and `evidence` go into the `claimed` event.

    `claimed_at`: when the store gave it out. `by_clock`: it is due by the claimer's clock, which is no other reader's.
    """

    id: TaskId
    run_id: RunId
    workflow: str
    queue: str = "default"
    due_at: StoreTime = StoreTime(0.0)
    cause: str = "woken"
    evidence: Evidence = {}
    by_clock: bool = False
    claimed_at: StoreTime = StoreTime(0.0)


class Wants(msgspec.Struct, frozen=True):
    """Which tasks a runner can take. `workflows` None: any.

    `specs`: also the runs of any stored spec, except for `excluded_specs`, whose functions this runner lacks.
    """

    queues: tuple[str, ...] = ("default",)
    workflows: tuple[str, ...] | None = None
    stack: str | None = None
    env: str | None = None
    specs: bool = False
    excluded_specs: tuple[str, ...] = ()


class RunnerInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Identity of a runner. Proof of its death needs host, boot, PID namespace, pid and start time together."""

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
    # name -> its parameters in short (`engine.authoring.outline`), so that a server can check an input
    outlines: dict[str, dict[str, str]] = {}
    # Specs that it leaves to others, because it has not their functions.
    unable: tuple[str, ...] = ()
    # "worker", or "client" for a process that only ran something of its own
    role: str = "worker"
    # Runs that it drives whenever no other runner does, whatever its role. `buoy run` has one.
    tends: tuple[RunId, ...] = ()
    # None: a record of an earlier release. Then the store decides: a lock where there are lock files, else the process.
    proof: Proof | None = None
    # None: it is not in an allocation of a batch scheduler.
    allocation: AllocationPlace | None = None


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a leaf has come, in its own words. Not durable: it travels with the beats."""

    at: float  # by the clock of its runner, which writes the run's log
    done: float | None = None
    total: float | None = None
    note: str = ""
    leaf: str = ""


class SweepHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the sweeper of a runner fares. `at`: when its last whole sweep ended, by the store's clock."""

    interval_s: float
    at: StoreTime | None = None
    duration_s: float = 0.0
    sweeps: int = 0
    errors: int = 0
    last_error: str | None = None
    # The last whole sweep itself failed; errors of single runs are only counted.
    failing: bool = False
    # The first whole sweep was asked to come so late.
    delay_s: float = 0.0


class LoopHeld(msgspec.Struct, frozen=True):
    """A blocking call holds the event loop of a runner, so none of its other runs moves.

    `for_s`: how long it has, at the time of the beat. `leaf`: the step that blocks; None: workflow code of `run_id`
    does, or code outside of any run. `where`: file, line and function.
    """

    for_s: float
    run_id: RunId | None = None
    leaf: str | None = None
    where: str = ""


class Beat(msgspec.Struct, frozen=True):
    """One sign of life. `number` only ever grows."""

    number: int
    holding: int = 0
    errors: int = 0
    last_error: str | None = None
    error_age_s: float = 0.0  # of its last error, at the time of the beat
    progress: dict[RunId, Progress] = {}
    sweep: SweepHealth | None = None  # None: this runner does not sweep
    loop_held: LoopHeld | None = None
    stuck: tuple[RunId, ...] = ()  # runs whose code waits, with nothing open that could wake it


# `gone_why` of a runner that deregistered. That of any other is the proof of its death, in words for people.
DEREGISTERED = "stopped"


class RunnerRecord(msgspec.Struct, frozen=True):
    """A runner as the store has it. Times are the store's."""

    info: RunnerInfo
    registered_at: StoreTime
    beat_at: StoreTime
    beat: Beat
    # Set once, never cleared: dead is final.
    gone_at: StoreTime | None = None
    gone_why: str | None = None
    suspected_at: StoreTime | None = None  # the first of two looks across hosts
    suspected_beat: int | None = None
    # Why its record cannot be read; then only its id is certain. Such a runner may live.
    unreadable: str | None = None
    # Of a glance: the runner has beaten since this record was read; for how long, by our clock, it has not.
    beaten: bool = False
    quiet_s: float = 0.0


class Broken(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something in a store that is there and cannot be read. It hides nothing else, and is never taken for absent.

    `place`: its key in a folder or bucket, or its table and row.
    """

    kind: Literal["run", "runner", "schedule", "task"]
    id: str
    reason: str
    place: str = ""


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, newest first. `text`: what their id contains. Times: from the first on, before the others.

    `stack`: runs of that stack and those without one; None: of all stacks. `env`: of exactly that env, None being the
    default one; unset: of all envs.
    `created_*` are times of the runs, as their creators dated them.
    `hinted`: for a loop that looks again. A store may then leave out a run that its index does not show as such.
    """

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    holder: RunnerId | None = None
    parent: RunId | None = None
    text: str = ""
    created_from: float | None = None
    created_before: float | None = None
    updated_before: StoreTime | None = None
    stack: str | None = None
    env: str | msgspec.UnsetType | None = msgspec.UNSET
    hinted: bool = False


# In counts: runs that ended, whose status was not read.
ENDED = "ended"
# In counts, with 0: there are more runs that ended than were counted, since each look at a thousand of them is billed.
MORE = "more"


class RunPage(msgspec.Struct, frozen=True):
    """`cursor` None: that was the last page. `broken`: runs of this page that cannot be read.

    A store may not know whether a broken run fits the query. It then lists the run anyway.
    """

    runs: tuple[RunRecord, ...]
    cursor: str | None = None
    broken: tuple[Broken, ...] = ()


class Orphan(msgspec.Struct, frozen=True):
    """An active run whose task is missing, or held by a runner that is gone or was never registered."""

    run_id: RunId
    holder: RunnerId | None
    why: str
    no_task: bool = False  # there is no task at all
