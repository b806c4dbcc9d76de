"""Remains in objects: a run that cannot be read, byte by byte, and what of it is in the indexes.

Invariant: nothing here decodes what is stored, except for the number of a commit, which is in its key.
"""

from __future__ import annotations

from buoy.core.ids import RunId
from buoy.errors import CorruptLog
from buoy.ports.maintenance import RawPart, Remains
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.runs import Runs


async def remains(bucket: Bucket, runs: Runs, run_id: RunId) -> Remains | None:
    """Every object below the run's prefix, also those that Buoy did not write."""
    prefix = layout.run_prefix(run_id)
    keys = await bucket.list(prefix)
    entries = await index_entries(bucket, run_id)
    if not keys and not entries:
        return None
    bodies = await each(keys, lambda key: _body(bucket, key))
    held = next((entry for key in entries if (entry := _held(key)) is not None), None)
    listed = next((place for key in entries if (place := _listed(key)) is not None), None)
    return Remains(
        parts=tuple(RawPart(key.removeprefix(prefix), body) for key, body in zip(keys, bodies, strict=True)),
        head_seq=await _head(runs, run_id, layout.numbers_of(keys, layout.log_prefix(run_id))),
        holder=None if held is None else held.runner,
        created_at=0.0 if listed is None else layout.created_at_place(listed.place),
    )


async def index_entries(bucket: Bucket, run_id: RunId) -> list[str]:
    """All index entries that name this run. Reads whole indexes: only for what a person asks for once."""
    found: list[str] = []
    for prefix in (layout.INDEX, layout.ACTIVE):
        keys = await bucket.list(prefix)
        found += [key for key in keys if (entry := layout.run_entry(key)) is not None and entry.run_id == run_id]
    for key in await bucket.list(layout.TASKS):
        task = layout.task_entry(key)
        found += [key] if task is not None and task.run_id == run_id else []
    for key in await bucket.list(layout.PARKED):
        parked = layout.parked_entry(key)
        found += [key] if parked is not None and parked.run_id == run_id else []
    found += [key for key in await bucket.list(layout.HELD) if (one := _held(key)) is not None and one.run_id == run_id]
    return found + await bucket.list(layout.wake_prefix(run_id))


def _held(key: str) -> layout.HeldEntry | None:
    return layout.held_entry(key) if key.startswith(layout.HELD) else None


def _listed(key: str) -> layout.RunEntry | None:
    return layout.run_entry(key) if key.startswith((layout.INDEX, layout.ACTIVE)) else None


async def _body(bucket: Bucket, key: str) -> bytes:
    """What cannot even be opened has no bytes that could be copied."""
    try:
        found = await bucket.get(key)
    except CorruptLog as error:
        return str(error).encode()
    return b"" if found is None else found[0]


async def _head(runs: Runs, run_id: RunId, firsts: list[int]) -> int:
    """The last number that a commit certainly has."""
    if not firsts:
        return 0
    try:
        last = await runs.log_object(run_id, firsts[-1])
    except CorruptLog:
        last = None
    return firsts[-1] if last is None else last.last_seq
