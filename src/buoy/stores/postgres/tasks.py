"""Tasks and runners in PostgreSQL: which runner may drive which run, which runners are gone, and orphans.

Invariants: a task is claimed, released and adopted under the lock of its row, so it has one holder at most. A runner
that is gone stays gone and gets nothing. Every statement reads active runs and living runners only.
"""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunId, RunnerId, orchestrate_task_id
from buoy.core.limits import RUNS_PAGE_MAX, TASKS_CLAIM_MAX
from buoy.core.log.document import Document
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog, WrongState
from buoy.ports.records import Beat, Ended, Evidence, Orphan, Released, RunnerInfo, RunnerRecord, Task, Wants
from buoy.stores.postgres.commit import NO_EVIDENCE, delay_of, storable, storable_or_none
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.lanes import Work
from buoy.stores.postgres.runs import document_of
from buoy.stores.rows import evidence_of, runner_of
from buoy.stores.unreadable import Met

_ENCODER = msgspec.json.Encoder()


def claim_work(runner: RunnerId, wants: Wants, limit: int, met: Met) -> Work[list[Task]]:
    workflows = None if wants.workflows is None else list(wants.workflows)
    values = (
        *(runner, list(dict.fromkeys(wants.queues)), wants.env, wants.stack, workflows, wants.specs),
        *(list(wants.excluded_specs), max(0, min(limit, TASKS_CLAIM_MAX))),
    )

    def claim_tasks(connection: Connection) -> list[Task]:
        return [
            Task(
                task_id,
                run_id,
                workflow,
                queue,
                StoreTime(due_at),
                cause,
                evidence_of(run_id, data, met),
                claimed_at=StoreTime(claimed_at),
            )
            for task_id, run_id, workflow, queue, due_at, cause, data, claimed_at in connection.rows(
                "claim_tasks", values
            )
        ]

    return claim_tasks


def release_work(run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None) -> Work[bool]:
    values: tuple[object, ...] = (run_id, runner, head_seq)
    if isinstance(change, Ended):
        values += (True, None, False, 0, "", NO_EVIDENCE)
    else:
        values += (False, *delay_of(change), change.seen, storable(change.cause), _ENCODER.encode(change.evidence))

    def release_task(connection: Connection) -> bool:
        row = connection.row("release_task", values)
        return row is not None and bool(row[0])

    return release_task


def unread_runs(connection: Connection, runner: RunnerId) -> list[RunId]:
    return [run_id for (run_id,) in connection.rows("unread_runs", (runner,))]


def mark_read_work(run_id: RunId, runner: RunnerId, number: int) -> Work[None]:
    def mark_read(connection: Connection) -> None:
        # Alone in its transaction, and not durable by itself: a lost mark costs one more look at the inbox.
        connection.run("mark_read", (number, run_id, runner))

    return mark_read


def register_work(info: RunnerInfo) -> Work[None]:
    values = {
        "runner": info.id,
        "info": _ENCODER.encode(info),
        "host": storable(info.host),
        "pid": info.pid,
        "beat": _ENCODER.encode(Beat(number=0)),
    }

    def register(connection: Connection) -> None:
        with connection.transaction():
            if connection.count("register", values) == 0:
                raise WrongState(f"runner {info.id} was declared gone; register under a new id")

    return register


def beat_work(runner: RunnerId, beat: Beat) -> Work[bool]:
    values = (beat.number, _ENCODER.encode(beat), runner)

    def note_beat(connection: Connection) -> bool:
        # One round trip. A beat that a crash of the server loses is followed by the next one.
        return connection.count("beat", values) == 1

    return note_beat


def all_runners(connection: Connection, gone: int) -> list[RunnerRecord]:
    """The living, then the newest of those that are gone."""
    rows = connection.rows("runners_living")
    if gone > 0:
        rows += connection.rows("runners_gone", (gone,))
    return [runner_of(row) for row in rows]


def may_retire(connection: Connection, keep: int) -> bool:
    """Whether there is a record to remove. Looking takes no lock."""
    return connection.row("may_retire", {"keep": keep, "limit": 1}) is not None


def retire_work(keep: int, limit: int) -> Work[int]:
    def retire(connection: Connection) -> int:
        with connection.transaction():
            return connection.count("retire", {"keep": keep, "limit": limit})

    return retire


def suspect_work(runner: RunnerId, beat_number: int) -> Work[RunnerRecord | None]:
    def suspect(connection: Connection) -> RunnerRecord | None:
        with connection.transaction():
            row = connection.row("suspect", {"runner": runner, "beat": beat_number})
            record = None if row is None else runner_of(row)
            if record is not None and record.unreadable is not None:
                raise CorruptLog(f"runner {runner}: {record.unreadable}")
            return record

    return suspect


def declare_dead_work(
    runner: RunnerId, why: str, cause: str, evidence: Evidence, beat_number: int | None = None
) -> Work[int | None]:
    values = (runner, storable(why), storable(cause), _ENCODER.encode(evidence), beat_number)

    def declare_dead(connection: Connection) -> int | None:
        row = connection.row("declare_dead", values)
        assert row is not None
        released: int | None = row[0]
        return released

    return declare_dead


def orphans(connection: Connection, limit: int) -> list[Orphan]:
    limit = max(1, min(limit, RUNS_PAGE_MAX))
    found: list[Orphan] = []
    for holder, gone in connection.rows("orphaned"):
        why = f"held by {holder}, which {'is gone' if gone else 'is not registered'}"
        held = connection.rows("held_by", (holder, limit - len(found)))
        found += [Orphan(run_id, holder, why) for (run_id,) in held]
    bare = connection.rows("without_task", (limit - len(found),))
    return found + [Orphan(run_id, None, "it has no task", no_task=True) for (run_id,) in bare]


def requeue_work(orphan: Orphan) -> Work[bool]:
    evidence = _ENCODER.encode({"orphan": orphan.why})

    def requeue_orphan(connection: Connection) -> bool:
        with connection.transaction():
            if orphan.holder is None:
                return _adopt_bare(connection, orphan.run_id, evidence)
            holder = connection.row("lock_runner", (orphan.holder,))
            if holder is not None and holder[0]:
                return False
            return connection.count("adopt_held", (evidence, orphan.holder, orphan.run_id)) == 1

    return requeue_orphan


def _adopt_bare(connection: Connection, run_id: RunId, evidence: bytes) -> bool:
    bare = connection.row("lock_bare", (run_id,))
    if bare is None:
        return False
    number, generation, doc = bare
    # The task of this generation is lost, so its id must not come back.
    document = document_of(connection, number, doc)
    values = task_values(document, number, generation + 1, at_once=True, cause="taken_over", evidence=evidence)
    if connection.count("new_task", values) == 0:
        return False
    connection.run("set_task", (generation + 1, values["task_id"], number))
    return True


def task_values(
    document: Document, number: int, generation: int, *, at_once: bool = False, due_at: float | None = None,
    cause: str = "woken", evidence: bytes = NO_EVIDENCE, holder: str | None = None, all_seen: bool = False,
) -> dict[str, object]:  # fmt: skip
    """The parameters of `new_task`. `due_at`: by the store's clock."""
    return {
        "run": number,
        "task_id": orchestrate_task_id(document.run_id, generation),
        "run_id": document.run_id,
        "workflow": storable(document.workflow),
        "queue": storable(document.queue),
        "stack": storable_or_none(document.stack),
        "env": storable_or_none(document.env),
        "due_at": due_at,
        "at_once": at_once,
        "all_seen": all_seen,
        "holder": holder,
        "cause": cause,
        "evidence": evidence,
    }
