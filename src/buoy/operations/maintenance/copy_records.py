"""Copying records: moves schedules and the tombstones of purged runs from one store to another.

Invariant: a schedule fires in one store only, so it is removed in the source before it is made in the target.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from buoy.engine.client.client import Client
from buoy.errors import WrongState
from buoy.operations.maintenance.copy_runs import PAGE, refuse_same


class CopiedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one schedule."""

    name: str
    state: Literal["would_move", "moved", "complete"]


async def copy_schedules(source: Client, target: Client, *, dry_run: bool = False) -> list[CopiedSchedule]:
    """Moves every schedule that was not removed. It is removed in the source first: it must not fire twice."""
    there = {each.name: each for each in await target.store.schedules.schedules()}
    copied: list[CopiedSchedule] = []
    for each in await source.store.schedules.schedules():
        mark = f"moved to {target.store.name}"
        if each.removed_at is not None and each.by != mark:
            continue
        known = each.name in there
        state: Literal["would_move", "moved", "complete"] = "complete" if known else "moved"
        if dry_run:
            copied.append(CopiedSchedule(name=each.name, state="complete" if known else "would_move"))
            continue
        now = source.clock.now()
        if each.removed_at is None:
            gone = msgspec.structs.replace(each, removed_at=now, by=mark, number=each.number + 1)
            if not await source.store.schedules.save_schedule(gone):
                raise WrongState(f"schedule {each.name} was changed in {source.store.name}; copy again")
        if not known:
            if each.workflow_version and (data := await source.store.definition(each.workflow_version)) is not None:
                await target.store.define(each.workflow_version, data)
            made = msgspec.structs.replace(each, removed_at=None, by=target.actor, number=1)
            await target.store.schedules.save_schedule(made)
        copied.append(CopiedSchedule(name=each.name, state=state))
    return copied


async def copy_tombstones(source: Client, target: Client, *, dry_run: bool = False) -> int:
    """Uses up the ids of purged runs in the target too. How many were not used up there."""
    refuse_same(source, target)
    number, after = 0, None
    while page := await source.store.archive.tombstones(after, PAGE):
        for tombstone in page:
            after = tombstone.run_id
            if await target.store.archive.tombstone(after) is not None:
                continue
            if await target.store.run(after) is not None:
                here = source.store.name
                raise WrongState(f"{target.store.name} has a run {after}, which was purged from {here}; look at both")
            number += dry_run or await target.store.archive.add_tombstone(tombstone)
    return number
