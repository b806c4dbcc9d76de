"""Marker: the object that says that a place of a bucket is a Buoy store, and of which format.

Invariant: a place that holds something else is never made a store.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from buoy.errors import StoreUnusable
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Exists
from buoy.stores.objects.probe import PROBE, PROBED

FORMAT = 1


class Marker(msgspec.Struct, frozen=True):
    """Says that a bucket is a Buoy store, and of which format."""

    format: int


async def mark(bucket: Bucket) -> None:
    """Makes an empty bucket a store; refuses what is none, and what a newer Buoy made."""
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


async def refuse_foreign(bucket: Bucket) -> None:
    """Raises if the place holds something and is no store."""
    # A probe that was cut short may have left something.
    holds = [key for key in await bucket.list("", limit=100) if not key.startswith((PROBE, PROBED))]
    if (holds or await bucket.foreign("")) and await bucket.get(layout.MARKER) is None:
        raise StoreUnusable(f"{bucket.name} holds other things and is no Buoy store; name an empty place or a store")
