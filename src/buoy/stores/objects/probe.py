"""Probe: whether a bucket keeps what the object layout rests on. Done at the first connection, and by `buoy doctor`.

Invariants: a bucket that lets two writers win, ignores conditions, or shows an old state is refused, and the refusal
names the guarantee. An unclear answer is no verdict: it stays `Unavailable`. The probe leaves nothing behind but its
result. Absent on purpose: a proof. A bucket that lies once in a thousand writes passes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from buoy.errors import StoreUnusable, Unavailable
from buoy.stores.objects.bucket import Bucket, Changed, Exists

# Keys that the probe writes and removes.
PROBE = "probe/"
# What a probe found out, by the server and bucket that it was made on.
PROBED = "probed/"
WRITERS = 6
ROUNDS = 2
LISTED = 5

Guarantee: TypeAlias = Literal[
    "create-if-absent",
    "create-if-absent under concurrency",
    "compare-and-swap",
    "compare-and-swap under concurrency",
    "read-after-write",
    "list-after-write",
    "etags in listings",
]
_ADVICE = "use a bucket with conditional writes and strong consistency (AWS S3 and most recent S3 servers have both)"


class Probed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a probe found out about a server that keeps all guarantees."""

    etags: Literal["quoted", "bare"] = "quoted"
    byte_order: bool = True
    versioned: bool = False


class BrokenGuarantee(Exception):
    """A guarantee that the bucket does not keep, and what was seen."""

    def __init__(self, guarantee: Guarantee, seen: str) -> None:
        super().__init__(guarantee, seen)
        self.guarantee = guarantee
        self.seen = seen


async def check_guarantees(bucket: Bucket) -> None:
    """Raises `StoreUnusable` with the name of the first guarantee that this bucket does not keep."""
    place = f"{PROBE}{secrets.token_hex(8)}/"
    try:
        for check in (_creates, _replaces, _one_creator, _one_replacer, _lists):
            await check(bucket, place)
    except BrokenGuarantee as broken:
        raise StoreUnusable(
            f"{bucket.name} cannot be a store: it does not keep {broken.guarantee}: {broken.seen}; {_ADVICE}"
        ) from broken
    finally:
        await _clean_up(bucket, place)


async def lists_in_byte_order(bucket: Bucket) -> bool:
    """Whether this server lists `a-1` before `a/1`, and finds `a/1` after `a-1`, as S3 does."""
    place = f"{PROBE}{secrets.token_hex(8)}/"
    keys = [f"{place}a-1", f"{place}a/1"]
    try:
        for key in keys:
            await bucket.create(key, b"order")
        first = await bucket.list(place, limit=1)
        return first == keys[:1] and await bucket.list(place, after=keys[0], limit=1) == keys[1:]
    finally:
        await _clean_up(bucket, place)


async def etags_fit(bucket: Bucket) -> bool:
    """Whether a replacement with the present etag goes through: servers want etags with or without quotes."""
    place = f"{PROBE}{secrets.token_hex(8)}/"
    try:
        etag = await bucket.create(f"{place}etag", b"1")
        await bucket.replace(f"{place}etag", b"2", etag)
    except Changed:
        return False
    finally:
        await _clean_up(bucket, place)
    return True


async def _creates(bucket: Bucket, place: str) -> None:
    key = f"{place}create"
    await _expect(bucket, key, None)
    etag = await bucket.create(key, b"first")
    await _expect(bucket, key, b"first", etag)
    try:
        await bucket.create(key, b"second")
    except Exists:
        await _expect(bucket, key, b"first", etag)
        return
    raise BrokenGuarantee("create-if-absent", "a second create of one key succeeded")


async def _replaces(bucket: Bucket, place: str) -> None:
    key = f"{place}replace"
    try:
        await bucket.replace(key, b"0", "0" * 32)
    except Changed:
        pass
    else:
        raise BrokenGuarantee("compare-and-swap", "an object that was not there was replaced")
    first = await bucket.create(key, b"1")
    try:
        second = await bucket.replace(key, b"2", first)
    except Changed as error:
        raise BrokenGuarantee("compare-and-swap", "a replacement of the present version was refused") from error
    await _expect(bucket, key, b"2", second)
    try:
        await bucket.replace(key, b"3", first)
    except Changed:
        await _expect(bucket, key, b"2", second)
    else:
        raise BrokenGuarantee("compare-and-swap", "a version that was gone was replaced")
    await bucket.delete(key)
    await _expect(bucket, key, None)


async def _one_creator(bucket: Bucket, place: str) -> None:
    async def one_round(number: int) -> None:
        key = f"{place}creators-{number}"
        await _one_wins(bucket, key, partial(bucket.create, key), "create-if-absent under concurrency")

    # Both at once: some servers make every contended write wait for a second.
    await asyncio.gather(*map(one_round, range(ROUNDS)))


async def _one_replacer(bucket: Bucket, place: str) -> None:
    async def one_round(number: int) -> None:
        key = f"{place}replacers-{number}"
        etag = await bucket.create(key, b"old")
        await _one_wins(bucket, key, partial(bucket.replace, key, etag=etag), "compare-and-swap under concurrency")

    await asyncio.gather(*map(one_round, range(ROUNDS)))


async def _one_wins(bucket: Bucket, key: str, write: Callable[[bytes], Awaitable[str]], guarantee: Guarantee) -> None:
    """Many writers at once, each with its own body. Only the writer whose body is there may have got a success."""

    async def one(data: bytes) -> bool | None:
        try:
            await write(data)
        except (Exists, Changed):
            return False
        except Unavailable:
            # Some servers answer the losers of a race with an error: unknown, not a win.
            return None
        return True

    bodies = [f"writer {number}".encode() for number in range(WRITERS)]
    answers = await asyncio.gather(*map(one, bodies))
    won = [body for body, answer in zip(bodies, answers, strict=True) if answer]
    if len(won) > 1:
        raise BrokenGuarantee(guarantee, f"{len(won)} of {WRITERS} writers at once were told that they won")
    found = await bucket.get(key)
    if won and (found is None or found[0] != won[0]):
        raise BrokenGuarantee(guarantee, "the writer that got a success is not the one whose data is there")
    if not won and None not in answers:
        raise BrokenGuarantee(guarantee, f"all of {WRITERS} writers at once were told that they lost")


async def _lists(bucket: Bucket, place: str) -> None:
    keys = [f"{place}list/{number}" for number in range(LISTED)]
    etags = await asyncio.gather(*(bucket.create(key, key.encode()) for key in keys))
    listed = await bucket.list_etags(f"{place}list/")
    if [key for key, _ in listed] != keys:
        raise BrokenGuarantee(
            "list-after-write", f"a listing showed {len(listed)} of {LISTED} objects that had been written"
        )
    if [etag for _, etag in listed] != etags:
        raise BrokenGuarantee(
            "etags in listings", "a listing showed other etags than the writes had been answered with"
        )
    await bucket.delete(keys[0])
    if await bucket.list(f"{place}list/") != keys[1:]:
        raise BrokenGuarantee("list-after-write", "a listing showed an object that had been deleted")


async def _expect(bucket: Bucket, key: str, data: bytes | None, etag: str | None = None) -> None:
    found = await bucket.get(key)
    if (None if found is None else found[0]) != data:
        raise BrokenGuarantee("read-after-write", "a read did not show the last write")
    if etag is not None and found is not None and found[1] != etag:
        raise BrokenGuarantee("read-after-write", "a read showed another etag than the write had been answered with")


async def _clean_up(bucket: Bucket, place: str) -> None:
    keys = await bucket.list(place)
    if keys:
        await bucket.delete_many(keys)
