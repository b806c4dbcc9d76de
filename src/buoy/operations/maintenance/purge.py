"""Purging: deletes runs that ended long ago. The only thing in Buoy that deletes, and only when a person asks for it.

Invariants: only runs that ended, owe nothing to others and have not moved since they were looked at; each leaves a
tombstone, so that its id is not used again and a person can tell what became of it. A purge that was cut off is
finished by the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.times import StoreTime
from buoy.engine.client.client import Client
from buoy.errors import BadInput, CorruptLog
from buoy.operations.maintenance.purged_logs import remove_logs, runs_with_logs
from buoy.ports.maintenance import Tombstone
from buoy.ports.records import RunQuery, RunRecord

# A person reads a few of a million names.
NAMED_MAX = 1_000


class Purge(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to purge: those that ended longer ago than this."""

    older_than_s: float
    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    dry_run: bool = False


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted, or would be. `kept`: runs that changed since, or owe a message to another run."""

    purged: int = 0
    kept: int = 0
    finished: int = 0
    # Folders with the output of commands that were removed here, with those that an earlier purge had left.
    logs: int = 0
    dry_run: bool = False
    runs: tuple[RunId, ...] = ()


async def purge(client: Client, order: Purge, logs: Path | None = None) -> Purged:
    """Deletes the runs that fit, one by one: it can be stopped and repeated at any time.

    `logs`: the folder in which this machine keeps the output of commands; that of purged runs goes too.
    """
    wrong = sorted(set(order.statuses) - TERMINAL)
    if wrong:
        raise BadInput(f"runs that are {', '.join(wrong)} have not ended; purge takes ended runs only")
    archive, now = client.store.archive, await client.store.now()
    finished = 0
    if not order.dry_run:
        for run_id in await archive.half_purged():
            stone = await archive.tombstone(run_id)
            finished += stone is not None and await archive.purge(stone)
    done, kept, names = 0, 0, list[RunId]()
    async for record in _found(client, order, now - order.older_than_s):
        if not order.dry_run and not await archive.purge(_stone(record, float(now), client.actor)):
            kept += 1
            continue
        done += 1
        if len(names) < NAMED_MAX:
            names.append(record.document.run_id)
    cleared = 0 if logs is None or order.dry_run else await _clear_logs(client, logs)
    return Purged(purged=done, kept=kept, finished=finished, logs=cleared, dry_run=order.dry_run, runs=tuple(names))


async def _clear_logs(client: Client, folder: Path) -> int:
    """After the runs: output without a run is waste, a run without its output is a loss."""
    cleared = 0
    for run_id in list(runs_with_logs(folder)):
        if await _is_purged(client, run_id):
            cleared += remove_logs(folder, run_id)
    return cleared


async def _is_purged(client: Client, run_id: RunId) -> bool:
    """What cannot be read is not known to be purged, and keeps its output."""
    try:
        return await client.store.archive.tombstone(run_id) is not None and await client.store.run(run_id) is None
    except CorruptLog:
        return False


async def _found(client: Client, order: Purge, before: StoreTime) -> AsyncIterator[RunRecord]:
    statuses = order.statuses or tuple(sorted(TERMINAL))
    query = RunQuery(
        statuses=statuses, workflow=order.workflow, updated_before=before, stack=client.stack, env=client.env
    )
    cursor: str | None = None
    while True:
        page = await client.runs(query, cursor, RUNS_PAGE_MAX)
        for record in page.runs:
            yield record
        cursor = page.cursor
        if cursor is None:
            return


def _stone(record: RunRecord, now: float, by: str) -> Tombstone:
    doc = record.document
    return Tombstone(
        run_id=doc.run_id,
        workflow=doc.workflow,
        status=doc.status,
        head_seq=doc.head_seq,
        created_at=doc.created_at,
        ended_at=doc.updated_at,
        purged_at=now,
        by=by,
    )
