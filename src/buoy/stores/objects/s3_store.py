"""The S3 store: the object store in a bucket, for processes on any machines.

Invariant: nothing is kept in a bucket before the probe has shown that it keeps the guarantees of `Bucket`. The result
is an object of the bucket, so that only the first connection pays for it.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b

import msgspec

from buoy.errors import StoreUnusable
from buoy.ports.host import Clock
from buoy.ports.maintenance import StoreCheck
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import Address, parse_address
from buoy.stores.objects.marker import refuse_foreign
from buoy.stores.objects.probe import PROBED, Probed, check_guarantees, etags_fit, lists_in_byte_order
from buoy.stores.objects.store import ObjectStore

_VERSIONED = (
    "the bucket keeps old versions of objects, which cost space and slow listings down; set a lifecycle rule that "
    "expires noncurrent versions after a day and removes expired delete markers, or suspend versioning"
)


async def open_s3(url: str, clock: Clock) -> ObjectStore:
    """The store below that address, made if the place is empty and the bucket keeps the guarantees."""
    address = parse_address(url)
    bucket = await S3Bucket.open(address)
    try:
        await know_bucket(bucket, address, empty=True)
        store = await ObjectStore.on(bucket, clock=clock)
    except BaseException:
        await bucket.close()
        raise
    store.integrity.bucket_checks = lambda: _checks(bucket, address)
    return store


async def know_bucket(bucket: S3Bucket, address: Address, *, empty: bool = False) -> None:
    """Takes over what an earlier probe found out, or makes one. `empty`: only in a place that holds nothing else."""
    bucket.lists_in_byte_order = True
    found = await bucket.get(_key(address))
    probed = None
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        probed = None if found is None else msgspec.json.decode(found[0], type=Probed)
    if probed is None:
        if empty:
            await refuse_foreign(bucket)
        await _probe(bucket, address)
    else:
        bucket.etag_form, bucket.lists_in_byte_order = probed.etags, probed.byte_order


async def _probe(bucket: S3Bucket, address: Address) -> Probed:
    bucket.etag_form = "quoted"
    if not await etags_fit(bucket):
        bucket.etag_form = "bare"
    await check_guarantees(bucket)
    bucket.lists_in_byte_order = True
    bucket.lists_in_byte_order = await lists_in_byte_order(bucket)
    probed = Probed(bucket.etag_form, bucket.lists_in_byte_order, bucket.versioned)
    await bucket.put(_key(address), msgspec.json.encode(probed))
    return probed


async def _checks(bucket: S3Bucket, address: Address) -> list[StoreCheck]:
    """The probe again, for `buoy doctor`."""
    try:
        probed = await _probe(bucket, address)
    except StoreUnusable as error:
        return [StoreCheck("guarantees", False, str(error))]
    kept = "conditional writes are atomic; reads and listings show every write"
    return [
        StoreCheck("guarantees", True, kept),
        StoreCheck("versions", not probed.versioned, _VERSIONED if probed.versioned else "no old versions are kept"),
    ]


def _key(address: Address) -> str:
    """Of this server and bucket: objects that were copied elsewhere prove nothing there."""
    place = f"{address.scheme} {address.endpoint or ''} {address.bucket}"
    return f"{PROBED}{blake2b(place.encode(), digest_size=8).hexdigest()}.json"
