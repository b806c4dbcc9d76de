"""Records: what the objects of the object store hold, and a run as it is read from them.

Invariant: the task after a commit is in the commit's own object. `state.json` may lag behind the log or be lost:
of the two tasks the one with the higher version counts, and of the documents the one with the higher head.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from buoy.core.ids import RunId, RunnerId, orchestrate_task_id
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import Status
from buoy.core.log.pause import until_asked
from buoy.core.spec.model import is_spec
from buoy.core.times import StoreTime
from buoy.ports.maintenance import Tombstone
from buoy.ports.records import Ended, Envelope, Evidence, Held, Released, RunnerRecord, RunRecord, Task, Wants, Write
from buoy.stores.objects import layout
from buoy.stores.objects.layout import Version
from buoy.stores.store_clock import StoreClock

# due: at once, or from `due_at` on, for the first claimer. held: by `holder`. parked: until a message. none: no task.
TaskKind: TypeAlias = Literal["due", "held", "parked", "none"]


class TaskState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who drives a run. While it is held `due_at` keeps its place in the queue, should it come back.

    `at_once`: when this was written its time had come. Then no clock is asked again: that of another machine may be
    behind, and would keep it waiting.
    """

    kind: TaskKind
    seq: int
    rev: int = 0
    holder: RunnerId | None = None
    due_at: float | None = None
    at_once: bool = False
    cause: str = "woken"
    evidence: Evidence = {}
    # Highest message number that an owner looked at.
    seen: int = 0
    # The commit that began the run's present activity; names its entry in `active/`.
    active_seq: int = 1
    generation: int = 1
    # The version that its index entry names, if that is an earlier one: the commit that takes a run keeps the claim's.
    entry: str = ""

    @property
    def version(self) -> Version:
        return Version(self.seq, self.rev)

    @property
    def entry_version(self) -> Version:
        return layout.version_of(self.entry) or self.version

    def due(self, now: float) -> bool:
        return self.kind == "due" and (self.at_once or (self.due_at or 0.0) <= now)


class LogObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """One commit. `events` is what `codec.encode_events` gave."""

    last_seq: int
    events: msgspec.Raw
    document: msgspec.Raw
    task: TaskState
    nonce: str | None = None
    # Of a run that was imported: which copy, and the first numbers of the further parts of its log.
    copy: str = ""
    parts: tuple[int, ...] = ()
    # When a store with a clock of its own took this commit.
    taken_at: float | None = None
    # This is no commit but the end of the log for good: it fences every later append to a purged run.
    purged: Tombstone | None = None


class StateObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """`state.json`. `counter` makes each body, and so each etag, unique."""

    counter: int
    head_seq: int
    document: Document
    envelope: Envelope
    task: TaskState
    taken_at: float | None = None

    @property
    def updated_at(self) -> StoreTime:
        return StoreTime(self.document.updated_at if self.taken_at is None else self.taken_at)


class WorkHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a runner must know about a task before it looks at the run."""

    workflow: str
    stack: str | None = None
    env: str | None = None


class RunnerObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """`found`: what stood here before, if it could not be read and a verdict was written in its place."""

    counter: int
    record: RunnerRecord
    found: bytes = b""


class StoredRun(msgspec.Struct, frozen=True):
    """A run as this process last read or wrote it. `etag` None: there is no `state.json` yet."""

    run_id: RunId
    head_seq: int
    document: Document
    task: TaskState
    etag: str | None = None
    counter: int = 0
    saved_head: int = 0
    saved_status: Status | None = None
    saved_version: Version | None = None
    taken_at: float | None = None

    @property
    def updated_at(self) -> StoreTime:
        """When the store took the last commit; without a clock of its own it can only repeat the writer."""
        return StoreTime(self.document.updated_at if self.taken_at is None else self.taken_at)


def envelope_of(view: StoredRun) -> Envelope:
    """Who drives the run. What came without a log was never driven by Buoy."""
    generation = view.task.generation
    return Envelope(orchestrate_task_id(view.run_id, generation) if view.head_seq else None, generation)


def state_object(view: StoredRun) -> StateObject:
    return StateObject(
        counter=view.counter + 1,
        head_seq=view.head_seq,
        document=view.document,
        envelope=envelope_of(view),
        task=view.task,
        taken_at=view.taken_at,
    )


def record_of(view: StoredRun, inbox_head: int, now: float) -> RunRecord:
    """The run as the port shows it."""
    task = view.task
    due_at = task.due_at if task.kind == "due" else None
    if task.due(now) or (task.kind in ("due", "parked") and inbox_head > task.seen):
        due_at = now if due_at is None else min(due_at, now)
    return RunRecord(
        document=view.document,
        envelope=envelope_of(view),
        updated_at=view.updated_at,
        holder=task.holder if task.kind == "held" else None,
        due_at=None if due_at is None else StoreTime(due_at),
        inbox_head=inbox_head,
        has_task=task.kind != "none",
    )


def saved_view(run_id: RunId, saved: StateObject, etag: str) -> StoredRun:
    return StoredRun(
        run_id=run_id,
        head_seq=saved.head_seq,
        document=saved.document,
        task=saved.task,
        etag=etag,
        counter=saved.counter,
        saved_head=saved.head_seq,
        saved_status=saved.document.status,
        saved_version=saved.task.version,
        taken_at=saved.taken_at,
    )


def newer_task(one: TaskState, other: TaskState) -> TaskState:
    """The later of two states of a run's task; what was seen only grows."""
    later, earlier = (one, other) if one.version >= other.version else (other, one)
    return later if later.seen >= earlier.seen else msgspec.structs.replace(later, seen=earlier.seen)


def merged(one: StoredRun, other: StoredRun, *, state: StoredRun) -> StoredRun:
    """What is known from two looks at a run, in any order; of `state.json` what `state` saw."""
    # Of two with one head the later look counts: documents are put right without an event.
    head = one if one.head_seq > other.head_seq else other
    return msgspec.structs.replace(
        state, head_seq=head.head_seq, document=head.document, task=newer_task(one.task, other.task),
        taken_at=head.taken_at,
    )  # fmt: skip


def task_after(write: Write, old: TaskState | None, seen: int, clock: StoreClock, *, ended: bool = False) -> TaskState:
    """The task as a commit leaves it. `ended`: the run had ended before it.

    A holder that holds it again makes a new version too, because it may have lost the task in between. What the log
    says last must count, or a claimer that it fenced would hold a task that it does not drive. The entry of its claim
    stays; if it was removed in between, `orphans` finds an active run without an entry.
    """
    first = write.after_seq + 1
    change = write.task
    if old is None:
        old = TaskState(kind="none", seq=first, generation=0)
        if change is None and not write.document.ended:
            # The writer named no holder for the new run: the first claimer gets it.
            created_at = write.document.created_at
            change = Released(due_at=created_at, now=created_at, cause="created")
    seen = max(seen, old.seen, write.seen)
    if change is None and old.kind == "parked":
        # The entry says whether the run is paused, which this commit may change; no key serves two states.
        return msgspec.structs.replace(old, seq=first, rev=0, seen=seen)
    if change is None:
        return msgspec.structs.replace(old, seen=seen)
    if isinstance(change, Ended):
        return TaskState("none", first, seen=seen, active_seq=old.active_seq, generation=max(old.generation, 1))
    # A runner that had ended the run may still be about to remove the entry of its activity.
    begins = old.kind == "none" or (ended and not write.document.ended)
    active_seq, generation = (first, old.generation + 1) if begins else (old.active_seq, old.generation)
    if isinstance(change, Held):
        # `rev`: it was claimed, and this is the commit that takes it.
        again = old.kind == "held" and old.holder == change.runner and old.rev > 0
        return msgspec.structs.replace(
            old, kind="held", seq=first, rev=0, holder=change.runner, seen=seen, active_seq=active_seq,
            generation=generation, entry=str(old.entry_version) if again else "",
        )  # fmt: skip
    due_at, at_once = (None, False) if until_asked(write.document.pause) else clock.place(change)
    return TaskState(
        kind="parked" if due_at is None else "due",
        seq=first,
        due_at=due_at,
        at_once=at_once,
        cause=change.cause,
        evidence=change.evidence,
        seen=max(seen, change.seen),
        active_seq=active_seq,
        generation=generation,
    )


def next_task(
    old: TaskState, kind: TaskKind, *, holder: RunnerId | None = None, due_at: float | None = None,
    at_once: bool = False, cause: str = "woken", evidence: Evidence | None = None, seen: int = 0, renew: bool = False,
) -> TaskState:  # fmt: skip
    """The task after a change without a commit. `renew`: the old task is lost, its id must not come back."""
    return TaskState(
        kind=kind,
        seq=old.seq,
        rev=old.rev + 1,
        holder=holder,
        due_at=due_at,
        at_once=at_once,
        cause=cause,
        evidence=evidence or {},
        seen=max(seen, old.seen),
        active_seq=old.active_seq,
        generation=old.generation + 1 if renew else old.generation,
    )


def entry_of(document: Document, task: TaskState) -> tuple[str, bytes] | None:
    """Key and body of the index entry that a task must have while it is in this state."""
    if task.kind == "held" and task.holder is not None:
        return layout.held_key(task.holder, document.run_id, task.entry_version), b"{}"
    if task.kind == "due" and task.due_at is not None:
        kind = layout.work_kind(document.workflow, document.stack, document.env)
        key = layout.task_key(document.queue, task.due_at, task.at_once, document.run_id, task.version, kind)
        return key, msgspec.json.encode(WorkHint(document.workflow, document.stack, document.env))
    if task.kind == "parked":
        return layout.parked_key(document.run_id, task.version, paused=document.status is Status.PAUSED), b"{}"
    return None


def listed_entries(document: Document, task: TaskState) -> list[tuple[str, bytes]]:
    """All entries that a run must have while it is in this state."""
    run_id, created_at = document.run_id, document.created_at
    if task.kind == "none" and document.ended:
        return [(layout.index_key(run_id, created_at), b"{}")]
    entry = entry_of(document, task)
    return [(layout.active_key(run_id, created_at, task.active_seq), b"{}"), *([] if entry is None else [entry])]


def passed(key: str, version: Version, view: StoredRun) -> bool:
    """Whether the index entry of that version can never become true again, so that anybody may remove it."""
    valid = entry_of(view.document, view.task)
    if valid is not None and valid[0] == key:
        return False
    return version <= view.task.version


def fits(hint: WorkHint | Document, wants: Wants) -> bool:
    """Any runner takes a task without a stack; a runner without a stack takes any task. The env must be the same."""
    spec = wants.specs and is_spec(hint.workflow) and hint.workflow not in wants.excluded_specs
    if wants.workflows is not None and hint.workflow not in wants.workflows and not spec:
        return False
    return hint.env == wants.env and (wants.stack is None or hint.stack is None or hint.stack == wants.stack)


def claimed_task(view: StoredRun, task: TaskState, now: float, *, by_clock: bool = False) -> Task:
    """The task as its claimer receives it."""
    document = view.document
    return Task(
        id=orchestrate_task_id(view.run_id, task.generation),
        run_id=view.run_id,
        workflow=document.workflow,
        queue=document.queue,
        due_at=StoreTime(min(task.due_at or 0.0, now)),
        cause=task.cause,
        evidence=task.evidence,
        by_clock=by_clock,
        claimed_at=StoreTime(now),
    )
