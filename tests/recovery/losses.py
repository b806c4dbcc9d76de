"""A log that has lost its end, as a restored backup or a cut-off copy leaves it: the document knows more than it."""

from __future__ import annotations

import sqlite3
from typing import Any, cast

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.ports.records import Committed, Released, TaskChange, Write
from buoy.ports.store import Store
from buoy.stores.objects import layout
from tests.core.logbook import claimed, completed, started

from .harness import RecoveryHarness, created


async def lost_end(
    harness: RecoveryHarness, run_id: str = "run-1", task: TaskChange | None = None, policy: str = "resume"
) -> RunId:
    """A run of 7 events whose last commit, events 5 to 7, is gone from the log. Its document is at 7."""
    run = await harness.plant(run_id, created(policy), claimed("r1"), started("a#1"), completed("a#1"))
    await append_commit(
        harness, run, (started("b#1"), completed("b#1"), started("c#1")), task or Released(due_at=None, now=0.0)
    )
    await lose(harness.store, run, first_seq=5)
    return run


async def append_commit(
    harness: RecoveryHarness, run: RunId, bodies: tuple[e.Body, ...], task: TaskChange | None = None
) -> None:
    """One more commit."""
    log = await harness.log(run)
    seq = len(log)
    events = tuple(
        e.Event(seq + place, log[-1].at, body, log[-1].branch, nonce=f"{run}-{seq + 1}" if place == 1 else None)
        for place, body in enumerate(bodies, 1)
    )
    (outcome,) = await harness.store.commit([Write(run, seq, events, document(fold(run, [*log, *events])), task)])
    assert outcome == Committed(seq + len(bodies)), outcome


async def lose(store: Store, run: RunId, *, first_seq: int) -> None:
    """Takes the commit that begins with that event out of the store, behind its back. The document is current."""
    record = await store.run(run)
    assert record is not None
    # The document of a run in a folder may lag behind its log.
    await store.archive.rewrite(run, record.document, record.document.head_seq)
    kind, _, path = store.name.partition("://")
    if kind != "sqlite":
        await cast(Any, store)._bucket.delete(layout.log_key(run, first_seq))
        return
    connection = sqlite3.connect(path, isolation_level=None)
    gone = connection.execute(
        "DELETE FROM log WHERE first_seq = ? AND run = (SELECT number FROM runs WHERE run_id = ?)", (first_seq, run)
    )
    assert gone.rowcount == 1
    connection.close()
