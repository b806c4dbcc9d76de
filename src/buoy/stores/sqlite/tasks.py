"""Tasks and runners in SQLite: who may drive which run, which runners are gone, and which runs have no runner.

Invariants: a task is claimed, released and requeued under the write lock, so it has one holder at most. A runner that
is gone stays gone and gets nothing. Every statement here reads active runs and living runners only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import RUNS_PAGE_MAX, TASKS_CLAIM_MAX
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog, WrongState
from buoy.ports.records import Beat, Ended, Evidence, Orphan, Released, RunnerInfo, RunnerRecord, Task, Wants
from buoy.stores.rows import evidence_of, runner_of
from buoy.stores.sqlite.commit import END_TASK, NEW_TASK, RELEASE, released_row, task_row
from buoy.stores.sqlite.due import at_once, now_due, since
from buoy.stores.sqlite.lanes import Work
from buoy.stores.sqlite.runs import document_of
from buoy.stores.store_clock import StoreClock
from buoy.stores.unreadable import Met

_ENCODER = msgspec.json.Encoder()

_LIVING = "SELECT 1 FROM runners WHERE runner_id = ? AND gone_at IS NULL"
# A task without a stack is for every runner; a runner without one takes all. The env must be the same.
_DUE = """SELECT run, task_id, run_id, workflow, queue, due_at, cause, evidence FROM tasks
    WHERE holder IS NULL AND queue = ?1 AND due_at >= ?2 AND due_at <= ?3 AND env IS ?4
    AND (?5 IS NULL OR stack IS NULL OR stack = ?5)
    AND (?6 IS NULL OR workflow IN (SELECT value FROM json_each(?6))
        OR (?7 AND workflow LIKE 'spec:%' AND workflow NOT IN (SELECT value FROM json_each(?8))))
    ORDER BY due_at LIMIT ?9"""
# What is due at once is stored below zero; neither kind may starve the other.
_AT_ONCE = (at_once(0.0), -1e-9)
_CLAIM = "UPDATE tasks SET holder = ?, due_at = ? WHERE run = ?"
_HELD_BY = """SELECT t.run, r.head_seq FROM runs r CROSS JOIN tasks t ON t.run = r.number
    WHERE r.run_id = ? AND t.holder = ?"""
_POKES = "SELECT run_id FROM tasks WHERE holder = ? AND inbox_head > seen"
_SEEN = """UPDATE tasks SET seen = max(seen, ?3)
    WHERE run = (SELECT number FROM runs WHERE run_id = ?1) AND holder = ?2"""
_REGISTER = """INSERT INTO runners (runner_id, info, registered_at, beat_at, beat) VALUES (?1, ?2, ?3, ?3, ?4)
    ON CONFLICT (runner_id) DO UPDATE
    SET info = excluded.info, suspected_at = NULL, suspected_beat = NULL WHERE gone_at IS NULL"""
_BEAT = """UPDATE runners SET beat_at = ?, beat = ?, suspected_at = NULL, suspected_beat = NULL
    WHERE runner_id = ? AND gone_at IS NULL"""
_RUNNERS = """SELECT info, registered_at, beat_at, beat, gone_at, gone_why, suspected_at, suspected_beat, runner_id
    FROM runners"""
_RUNNERS_LIVING = f"{_RUNNERS} WHERE gone_at IS NULL ORDER BY registered_at"
_RUNNERS_GONE = f"{_RUNNERS} WHERE gone_at IS NOT NULL ORDER BY gone_at DESC LIMIT ?"
_RETIRED = """SELECT runner_id FROM runners r WHERE gone_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE holder = r.runner_id) ORDER BY gone_at DESC LIMIT ?2 OFFSET ?1"""
_RETIRE = "DELETE FROM runners WHERE runner_id = ? AND gone_at IS NOT NULL"
_RUNNER = f"{_RUNNERS} WHERE runner_id = ? AND gone_at IS NULL"
_SUSPECT = "UPDATE runners SET suspected_at = ?, suspected_beat = ? WHERE runner_id = ?"
_BURY = "UPDATE runners SET gone_at = ?, gone_why = ? WHERE runner_id = ? AND gone_at IS NULL"
# Work that comes back is due at once, at its own place in the queue if it had one.
_RELEASE_ALL = """UPDATE tasks SET holder = NULL, due_at = min(coalesce(due_at, ?1), ?1), cause = ?2, evidence = ?3
    WHERE holder = ?4"""
_ADOPT_HELD = """UPDATE tasks SET holder = NULL, due_at = min(coalesce(due_at, ?1), ?1), cause = ?2, evidence = ?3
    WHERE holder = ?4 AND run_id = ?5"""
# One step per holder, not per task: each jumps to the next name in the index.
_HOLDERS = """WITH RECURSIVE h (holder) AS (
    SELECT min(holder) FROM tasks WHERE holder IS NOT NULL
    UNION ALL SELECT (SELECT min(holder) FROM tasks WHERE holder > h.holder) FROM h WHERE h.holder IS NOT NULL)
    SELECT h.holder, r.gone_at IS NOT NULL FROM h LEFT JOIN runners r ON r.runner_id = h.holder
    WHERE h.holder IS NOT NULL AND (r.runner_id IS NULL OR r.gone_at IS NOT NULL)"""
_HOLDS = "SELECT run_id FROM tasks WHERE holder = ? LIMIT ?"
# What has no log is no run of ours, though it has a document.
_WITHOUT_TASK = """SELECT r.run_id FROM runs r LEFT JOIN tasks t ON t.run = r.number
    WHERE r.ended = 0 AND t.run IS NULL AND r.head_seq > 0 LIMIT ?"""
_BARE = """SELECT r.number, r.generation, r.doc FROM runs r LEFT JOIN tasks t ON t.run = r.number
    WHERE r.run_id = ? AND r.ended = 0 AND t.run IS NULL AND r.head_seq > 0"""
_SET_TASK = "UPDATE runs SET generation = ?, orchestrator_task_id = ? WHERE number = ?"


def due_tasks(connection: sqlite3.Connection, wants: Wants, limit: int, now: float) -> list[tuple[Any, ...]]:
    """Up to `limit` due rows, taken from the queues in turn, so that a full queue cannot starve another."""
    limit = min(limit, TASKS_CLAIM_MAX)
    workflows = None if wants.workflows is None else _ENCODER.encode(wants.workflows).decode()
    excluded_specs = _ENCODER.encode(wants.excluded_specs).decode()
    kinds = (wants.env, wants.stack, workflows, wants.specs, excluded_specs, limit)
    by_queue: list[Sequence[tuple[Any, ...]]] = []
    for queue in dict.fromkeys(wants.queues):
        at_once = connection.execute(_DUE, (queue, *_AT_ONCE, *kinds)).fetchall()
        by_clock = connection.execute(_DUE, (queue, 0.0, now, *kinds)).fetchall()
        by_queue.append(sorted(at_once + by_clock, key=lambda row: since(row[5])) if by_clock else at_once)
    depth = max(map(len, by_queue), default=0)
    return [rows[turn] for turn in range(depth) for rows in by_queue if turn < len(rows)][:limit]


def claim_work(runner: RunnerId, wants: Wants, limit: int, clock: StoreClock, met: Met) -> Work[list[Task]]:
    now = clock.now()

    def work(connection: sqlite3.Connection) -> list[Task]:
        if connection.execute(_LIVING, (runner,)).fetchone() is None:
            return []
        rows = due_tasks(connection, wants, limit, now)
        # Should it come back, it is due at once, at its old place in the queue.
        connection.executemany(_CLAIM, [(runner, now_due(row[5]), row[0]) for row in rows])
        return [
            Task(
                task_id,
                run_id,
                workflow,
                queue,
                StoreTime(min(since(due), now)),
                cause,
                evidence_of(run_id, data, met),
                by_clock=due >= 0.0 and not clock.own,
                claimed_at=StoreTime(now),
            )
            for _, task_id, run_id, workflow, queue, due, cause, data in rows
        ]

    return work


def release_work(
    run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None, clock: StoreClock
) -> Work[bool]:
    def work(connection: sqlite3.Connection) -> bool:
        held = connection.execute(_HELD_BY, (run_id, runner)).fetchone()
        if held is None or head_seq not in (None, held[1]):
            return False
        if isinstance(change, Ended):
            connection.execute(END_TASK, (held[0],))
            return True
        evidence = _ENCODER.encode(change.evidence)
        connection.execute(RELEASE, released_row(change.seen, change, evidence, clock, held[0]))
        return True

    return work


def unread_runs(connection: sqlite3.Connection, runner: RunnerId) -> list[RunId]:
    return [run_id for (run_id,) in connection.execute(_POKES, (runner,))]


def seen_work(run_id: RunId, runner: RunnerId, number: int) -> Work[None]:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute(_SEEN, (run_id, runner, number))

    return work


def register_work(info: RunnerInfo, now: float) -> Work[None]:
    values = (info.id, _ENCODER.encode(info), now, _ENCODER.encode(Beat(number=0)))

    def work(connection: sqlite3.Connection) -> None:
        if connection.execute(_REGISTER, values).rowcount == 0:
            raise WrongState(f"runner {info.id} was declared gone; register under a new id")

    return work


def beat_work(runner: RunnerId, beat: Beat, now: float) -> Work[bool]:
    values = (now, _ENCODER.encode(beat), runner)

    def work(connection: sqlite3.Connection) -> bool:
        return connection.execute(_BEAT, values).rowcount == 1

    return work


def all_runners(connection: sqlite3.Connection, gone: int) -> list[RunnerRecord]:
    """The living, then the newest of those that are gone."""
    rows = connection.execute(_RUNNERS_LIVING).fetchall()
    if gone > 0:
        rows += connection.execute(_RUNNERS_GONE, (gone,)).fetchall()
    return [runner_of(row) for row in rows]


def may_retire(connection: sqlite3.Connection, keep: int) -> bool:
    """Whether there is a record to remove. Looking costs no lock."""
    return connection.execute(_RETIRED, (keep, 1)).fetchone() is not None


def retire_work(keep: int, limit: int) -> Work[int]:
    def work(connection: sqlite3.Connection) -> int:
        found = connection.execute(_RETIRED, (keep, limit)).fetchall()
        connection.executemany(_RETIRE, found)
        return len(found)

    return work


def suspect_work(runner: RunnerId, beat_number: int, now: float) -> Work[RunnerRecord | None]:
    def work(connection: sqlite3.Connection) -> RunnerRecord | None:
        record = _beating(connection, runner, beat_number)
        if record is None or record.suspected_beat == beat_number:
            return record
        connection.execute(_SUSPECT, (now, beat_number, runner))
        return msgspec.structs.replace(record, suspected_at=now, suspected_beat=beat_number)

    return work


def _beating(connection: sqlite3.Connection, runner: RunnerId, beat_number: int) -> RunnerRecord | None:
    """The runner, if it is not gone and its last beat is that one."""
    row = connection.execute(_RUNNER, (runner,)).fetchone()
    record = None if row is None else runner_of(row)
    if record is not None and record.unreadable is not None:
        raise CorruptLog(f"runner {runner}: {record.unreadable}")
    return record if record is not None and record.beat.number == beat_number else None


def declare_dead_work(
    runner: RunnerId, why: str, cause: str, evidence: Evidence, now: float, beat_number: int | None = None
) -> Work[int | None]:
    values = (at_once(now), cause, _ENCODER.encode(evidence), runner)

    def work(connection: sqlite3.Connection) -> int | None:
        if beat_number is not None and _beating(connection, runner, beat_number) is None:
            return None
        connection.execute(_BURY, (now, why, runner))
        return connection.execute(_RELEASE_ALL, values).rowcount

    return work


def orphans(connection: sqlite3.Connection, limit: int) -> list[Orphan]:
    limit = max(1, min(limit, RUNS_PAGE_MAX))
    found: list[Orphan] = []
    for holder, gone in connection.execute(_HOLDERS).fetchall():
        why = f"held by {holder}, which {'is gone' if gone else 'is not registered'}"
        held = connection.execute(_HOLDS, (holder, limit - len(found)))
        found += [Orphan(run_id, holder, why) for (run_id,) in held]
    bare = connection.execute(_WITHOUT_TASK, (limit - len(found),))
    return found + [Orphan(run_id, None, "it has no task", no_task=True) for (run_id,) in bare]


def adopt_work(orphan: Orphan, now: float) -> Work[bool]:
    evidence = _ENCODER.encode({"orphan": orphan.why})

    def work(connection: sqlite3.Connection) -> bool:
        if orphan.holder is None:
            return _adopt_bare(connection, orphan.run_id, evidence, now)
        if connection.execute(_LIVING, (orphan.holder,)).fetchone() is not None:
            return False
        values = (at_once(now), "taken_over", evidence, orphan.holder, orphan.run_id)
        return connection.execute(_ADOPT_HELD, values).rowcount == 1

    return work


def _adopt_bare(connection: sqlite3.Connection, run_id: RunId, evidence: bytes, now: float) -> bool:
    bare = connection.execute(_BARE, (run_id,)).fetchone()
    if bare is None:
        return False
    number, generation, doc = bare
    # The task of this generation is lost, so its id must not come back.
    document = document_of(connection, number, doc)
    row = task_row(document, number, generation + 1, due=at_once(now), cause="taken_over", evidence=evidence)
    connection.execute(NEW_TASK, row)
    connection.execute(_SET_TASK, (generation + 1, row[1], number))
    return True
