"""Bulk: one action on every run that a filter chooses. A preview comes first; its token names exactly what was shown.

Invariants: an action touches only runs that have not changed since the preview, so that what is applied is what was
shown. Each part of the work may be repeated, also after a process died half-way. A run that was acted upon has moved
and is not chosen again. The dedupe id of a request that still waits in an inbox keeps out a second one.
Absent on purpose: a stored job. The token and the cursor say all, and the caller has them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from collections.abc import AsyncIterator
from typing import Literal, TypeAlias, get_args

import msgspec

from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId
from buoy.core.limits import BULK_PART_MAX, BULK_PART_S, BULK_RUNS_MAX, RUNS_PAGE_MAX
from buoy.core.times import StoreTime
from buoy.engine.client.client import Client
from buoy.errors import BadInput, UserError
from buoy.operations.control import recover, resume
from buoy.operations.inspect.runs import NOT_ENDED, RunFilter
from buoy.ports.records import RunQuery

BulkAction: TypeAlias = Literal["pause", "resume", "cancel", "retry", "recover", "release"]
ACTIONS: tuple[BulkAction, ...] = get_args(BulkAction)
_SAMPLE = 20
# What a run that has ended refuses.
_OF_ACTIVE: frozenset[BulkAction] = frozenset({"pause", "resume", "cancel", "release"})


class BulkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and with which runs."""

    action: BulkAction
    runs: RunFilter
    reason: str | None = None


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done. `token`: apply exactly this. `sample`: the first of the runs."""

    action: BulkAction
    count: int
    sample: tuple[RunId, ...]
    token: str


class BulkRefused(msgspec.Struct, frozen=True):
    """A run that did not take the action, and why."""

    run_id: RunId
    why: str


class BulkPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the work. `cursor`: where the next part begins; None: all is done."""

    action: BulkAction
    done: int
    refused: tuple[BulkRefused, ...]
    cursor: str | None


class _Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token says. `as_of`: runs that have changed since are left alone."""

    action: BulkAction
    query: RunQuery
    as_of: float
    id: str
    reason: str | None = None


async def preview(client: Client, order: BulkOrder) -> BulkPreview:
    """Counts the runs that the action would touch, and changes nothing."""
    if order.runs == RunFilter():
        raise BadInput("a bulk action needs a filter; name a status, a workflow, a text or an age")
    as_of = await client.store.now()
    runs = order.runs
    if order.action in _OF_ACTIVE and not runs.statuses:
        runs = msgspec.structs.replace(runs, statuses=NOT_ENDED)  # the others would refuse it, each for itself
    query = msgspec.structs.replace(runs.query(client.clock.now()), updated_before=as_of)
    token = _Token(order.action, query, float(as_of), client.ids.nonce(), order.reason)
    count, sample = 0, list[RunId]()
    async for run_id in _chosen(client, token):
        count += 1
        if len(sample) < _SAMPLE:
            sample.append(run_id)
        if count > BULK_RUNS_MAX:
            raise BadInput(f"more than {BULK_RUNS_MAX:,} runs fit; narrow the filter")
    return BulkPreview(action=order.action, count=count, sample=tuple(sample), token=_encode(token))


async def apply_part(
    client: Client, token: str, *, cursor: str | None = None, limit: int = 100, rate: float | None = None
) -> BulkPart:
    """Acts on the next runs of a preview, at most `limit` of them and `rate` per second. Safe to repeat."""
    if not 1 <= limit <= BULK_PART_MAX:
        raise BadInput(f"limit must be from 1 to {BULK_PART_MAX}: {limit}")
    if rate is not None and not 0.01 <= rate <= 10_000:
        raise BadInput(f"rate must be from 0.01 to 10000 per second: {rate}")
    order = _decode(token)
    # One part answers within a request: a slow rate makes small parts.
    size = limit if rate is None else max(1, min(limit, int(rate * BULK_PART_S)))
    page = await client.store.find_runs(order.query, cursor, size)
    done, refused = 0, list[BulkRefused]()
    for record in page.runs:
        run_id = record.document.run_id
        try:
            await _act(client, order, run_id)
            done += 1
        except UserError as error:
            refused.append(BulkRefused(run_id, str(error)))
        if rate is not None:
            await asyncio.sleep(1.0 / rate)
    refused += [BulkRefused(RunId(one.id), f"it cannot be read: {one.reason}") for one in page.broken]
    return BulkPart(action=order.action, done=done, refused=tuple(refused), cursor=page.cursor)


async def _act(client: Client, order: _Token, run_id: RunId) -> None:
    dedupe = f"bulk-{order.id}"
    match order.action:
        case "pause":
            await client.pause(run_id, order.reason, dedupe=dedupe)
        case "cancel":
            await client.cancel(run_id, order.reason, dedupe=dedupe)
        case "resume":
            await resume.resume_run(client, run_id, Wording(), strict=False)
        case "retry":
            await client.retry(run_id, dedupe=dedupe)
        case "recover":
            await recover.recover(client, run_id)
        case "release":
            await resume.release_run(client, run_id, Wording())


async def _chosen(client: Client, order: _Token) -> AsyncIterator[RunId]:
    cursor: str | None = None
    while True:
        page = await client.store.find_runs(order.query, cursor, RUNS_PAGE_MAX)
        for record in page.runs:
            yield record.document.run_id
        cursor = page.cursor
        if cursor is None:
            return


def _encode(token: _Token) -> str:
    data = msgspec.json.encode(token)
    return base64.urlsafe_b64encode(zlib.crc32(data).to_bytes(4, "big") + data).decode()


def _decode(token: str) -> _Token:
    """Raises `BadInput` if this is no token of a preview."""
    try:
        raw = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        if zlib.crc32(raw[4:]).to_bytes(4, "big") != raw[:4]:
            raise ValueError("its checksum differs")
        found = msgspec.json.decode(raw[4:], type=_Token)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise BadInput(f"this is no token of a preview: {error}; make a new preview") from error
    # The token bounds what is touched, whatever else its query says.
    return msgspec.structs.replace(
        found, query=msgspec.structs.replace(found.query, updated_before=StoreTime(found.as_of))
    )


__all__ = ["ACTIONS", "BulkAction", "BulkOrder", "BulkPart", "BulkPreview", "BulkRefused", "apply_part", "preview"]
