"""Tombstones in objects: those of purged runs, found among all runs, and those that come from elsewhere.

Invariants: a tombstone is at the first place of a log, which every new run of that id would take. Of a purged run
nothing but one or two objects of its log is left; so a listing shows which runs may be purged, and only those are read.
"""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.events import NULL
from buoy.ports.maintenance import Tombstone
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.records import LogObject, TaskState
from buoy.stores.objects.runs import Runs

PAGE = 1_000
_LEFT_MAX = 2


def tombstone_object(tombstone: Tombstone, task: TaskState) -> LogObject:
    """What is in the log of a purged run."""
    return LogObject(tombstone.head_seq, msgspec.Raw(b"[]"), NULL, task, purged=tombstone)


async def tombstones(bucket: Bucket, runs: Runs, after: RunId | None, limit: int) -> list[Tombstone]:
    """The first so many after that run. Each listing begins behind all keys of the last run of the one before."""
    found: list[Tombstone] = []
    place = None if after is None else f"{layout.run_prefix(after)}~"
    while len(found) < limit:
        keys = await bucket.list(layout.WORKFLOW, after=place, limit=PAGE)
        for part in await each(_candidates(keys), lambda run_id: _tombstone(runs, run_id)):
            found += [] if part is None else [part]
        if len(keys) < PAGE:
            break
        last = layout.run_of(keys[-1])
        place = max(keys[-1], "" if last is None else f"{layout.run_prefix(last)}~")
    return found[:limit]


def _candidates(keys: list[str]) -> list[RunId]:
    """Runs of which the listing shows nothing but a log of one or two commits."""
    of_run: dict[RunId, list[str]] = {}
    for key in keys:
        run_id = layout.run_of(key)
        if run_id is not None:
            of_run.setdefault(run_id, []).append(key)
    return [
        run_id
        for run_id, some in of_run.items()
        if len(some) <= _LEFT_MAX and all(key.startswith(layout.log_prefix(run_id)) for key in some)
    ]


async def _tombstone(runs: Runs, run_id: RunId) -> Tombstone | None:
    last = await runs.last_commit(run_id)
    return None if last is None else last.purged
