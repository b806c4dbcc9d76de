"""Marker: the object that says that a place of a bucket is a Buoy store, and of which format.

Invariants: a place that holds something else is never made a store. A runner of this Buoy marks a store of an earlier
format as one of its own before it registers. From then on the earlier Buoy refuses to open the store: the two know
other indexes, and must not work on one bucket. Reading alone changes nothing.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from buoy.errors import StoreUnusable
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.probe import PROBE, PROBED

# 1: without `parked/`, segments and the heartbeat in `living/`. 2: `index/` lists every run, not only those that ended.
FORMAT = 3


class Marker(msgspec.Struct, frozen=True):
    """Says that a bucket is a Buoy store, and of which format."""

    format: int


async def mark(bucket: Bucket) -> str | None:
    """Makes an empty bucket a store; refuses what is none, and what a newer Buoy made.

    The etag of the mark, if an earlier Buoy made it.
    """
    found = await bucket.get(layout.MARKER)
    if found is None:
        await refuse_foreign(bucket)
        with suppress(Exists):
            await bucket.create(layout.MARKER, msgspec.json.encode(Marker(FORMAT)))
        found = await bucket.get(layout.MARKER)
    try:
        made = msgspec.json.decode(b"" if found is None else found[0], type=Marker)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreUnusable(f"{bucket.name}/{layout.MARKER} cannot be read: {error}; restore it") from error
    if made.format > FORMAT:
        raise StoreUnusable(
            f"{bucket.name} has format {made.format}, this Buoy knows {FORMAT}: a newer Buoy wrote it; upgrade this one"
        )
    return found[1] if found is not None and made.format < FORMAT else None


async def upgrade(bucket: Bucket, etag: str) -> None:
    """Marks a store of an earlier format as one of this format. Another process may have been quicker."""
    with suppress(Changed):
        await bucket.replace(layout.MARKER, msgspec.json.encode(Marker(FORMAT)), etag)


async def refuse_foreign(bucket: Bucket) -> None:
    """Raises if the place holds something and is no store."""
    # A probe that was cut short may have left something.
    holds = [key for key in await bucket.list("", limit=100) if not key.startswith((PROBE, PROBED))]
    if (holds or await bucket.foreign("")) and await bucket.get(layout.MARKER) is None:
        raise StoreUnusable(f"{bucket.name} holds other things and is no Buoy store; name an empty place or a store")
