"""S3 bucket: the objects of a real bucket, through obstore.

Invariants: a conditional write is sent once, and again only after an answer that says that nothing was taken in. Any
other missing answer is `Unavailable`. "Exists" without an object there is unclear too. Etags are compared without
their quotes: servers write them both ways. Keys come in byte order, whatever order the server lists them in.
Absent on purpose: credentials, which `s3_address` leaves to obstore; guarantees, which `probe` checks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from buoy.errors import Unavailable
from buoy.ports.maintenance import Refusal
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import FOREIGN_MAX, Changed, Exists, check_key, is_key
from buoy.stores.objects.buckets.s3_address import Address, make_client
from buoy.stores.objects.buckets.s3_answers import answer_of, problem_of, without_body

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion

T = TypeVar("T")
Listed: TypeAlias = list[tuple[str, str]]
EtagForm = Literal["quoted", "bare"]

# A server that asks for fewer requests gets the same one again, after 0.1 s, 0.2 s... up to 2 s.
THROTTLED_TRIES_MAX = 8
BACKOFF_S = 0.1
BACKOFF_MAX_S = 2.0
# 409: another writer is at the same key. Whether it won is seen by looking.
CONFLICT_TRIES_MAX = 4
# S3 deletes so many objects by one request.
DELETES_MAX = 1_000
# The threads of obstore let go of Python's objects shortly after an answer; a process that ends before that is aborted.
LEAVE_S = 0.02
# The characters of names in keys, in byte order.
_ALPHABET = "%-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
# Sorts after every key that has another character than '~' at this place.
_AFTER_ALL = "~" * 16


class S3Bucket:
    """The objects below one prefix of one bucket. Made by `S3Bucket.open`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reads = make_client(address, retries=True)
        self._writes = make_client(address, retries=False)
        self._closed = False
        # So far, by kind, every try; a listing counts once for each 1,000 keys.
        self.requests: Counter[str] = Counter()
        self._by_version = address.scheme == "gs"
        # What the probe found out about this server; safe guesses until then.
        self.etag_form: EtagForm = "quoted"
        self.lists_in_byte_order = False
        # Whether the last write was answered with the version of the object: then the bucket keeps old versions.
        self.versioned = False

    @classmethod
    async def open(cls, address: Address) -> S3Bucket:
        return cls(address)

    @property
    def name(self) -> str:
        return self._address.name

    async def reopen(self) -> S3Bucket:
        again = S3Bucket(self._address)
        # The bill is that of the process: beats and sweeps have a bucket of their own.
        again.requests = self.requests
        again.etag_form, again.lists_in_byte_order = self.etag_form, self.lists_in_byte_order
        return again

    async def create(self, key: str, data: bytes) -> str:
        from obstore import put_async
        from obstore.exceptions import AlreadyExistsError

        check_key(key)

        def send() -> Awaitable[PutResult]:
            return put_async(self._writes, key, data, mode="create", use_multipart=False)

        for number in range(CONFLICT_TRIES_MAX):
            try:
                return self._made(await self._send("PUT", key, send, AlreadyExistsError, FileNotFoundError))
            except AlreadyExistsError as error:
                if answer_of(error).status == 412 or await self.get(key) is not None:
                    raise Exists(key) from error
            except FileNotFoundError as error:
                raise problem_of(error, self.name, f"PUT {key}") from error
            await asyncio.sleep(_pause_s(key, number))
        raise Unavailable(f"{self.name} refused to create {key} as existing, but nothing is there; try again")

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        from obstore import put_async
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        check_key(key)
        # Google Cloud Storage compares generations, which obstore calls versions.
        condition: UpdateVersion = {"version": etag} if self._by_version else {"e_tag": self._sent(etag)}

        def send() -> Awaitable[PutResult]:
            return put_async(self._writes, key, data, mode=condition, use_multipart=False)

        known = (AlreadyExistsError, FileNotFoundError, PreconditionError)
        for number in range(CONFLICT_TRIES_MAX):
            try:
                return self._made(await self._send("PUT", key, send, *known))
            except PreconditionError as error:
                raise Changed(key) from error
            except FileNotFoundError as error:
                raise Changed(key) from error
            except AlreadyExistsError as error:
                found = await self.get(key)
                if found is None or found[1] != etag:
                    raise Changed(key) from error
            await asyncio.sleep(_pause_s(key, number))
        raise Unavailable(f"{self.name} refused to replace {key} because of other writers; try again")

    async def put(self, key: str, data: bytes) -> str:
        from obstore import put_async

        check_key(key)
        return self._made(await self._send("PUT", key, lambda: put_async(self._reads, key, data, use_multipart=False)))

    async def get(self, key: str) -> tuple[bytes, str] | None:
        return await self._get(check_key(key), None)

    async def get_unless(self, key: str, etag: str) -> tuple[bytes, str] | None:
        found = await self._get(check_key(key), etag)
        return None if found is None or found[1] == etag else found

    async def foreign(self, prefix: str) -> list[str]:
        if prefix:
            found = [name for name, _ in await self._all(prefix) if not is_key(name)]
        else:
            from obstore import list_with_delimiter_async

            top = await self._send("LIST", "", lambda: list_with_delimiter_async(self._reads))
            found = [*top["common_prefixes"], *(meta["path"] for meta in top["objects"])]
            found = [name for name in found if not is_key(name.rstrip("/"))]
        return sorted(found)[:FOREIGN_MAX]

    async def list_etags(self, prefix: str, after: str | None = None, limit: int | None = None) -> Listed:
        shown = await self._all(prefix, after, limit)
        cut = limit is not None and len(shown) >= limit and any("/" in key[len(prefix) :] for key, _ in shown)
        if cut and not self.lists_in_byte_order:
            # This server shows the keys below a folder before those that only begin with its name.
            shown = await self._all(prefix, after)
        return sorted(each for each in shown if is_key(each[0]))[:limit]

    async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
        return [key for key, _ in await self.list_etags(prefix, after, limit)]

    async def delete(self, key: str) -> None:
        await self.delete_many([check_key(key)])

    async def delete_many(self, keys: Sequence[str]) -> None:
        from obstore import delete_async

        for start in range(0, len(keys), DELETES_MAX):
            some = list(keys[start : start + DELETES_MAX])
            try:
                # One key by its own request: some servers know no other.
                send = partial(delete_async, self._reads, some if len(some) > 1 else some[0])
                await self._send("DELETE", some[0], send, FileNotFoundError)
            except FileNotFoundError:
                # Where a missing object is an error, it is gone anyway.
                continue

    def pulse(self) -> int | None:
        """None: a bucket sends no notification of a change."""
        return None

    def durability(self) -> str | None:
        return None

    async def refusal(self) -> Refusal | None:
        """None: a bucket is never full. What else it refuses is seen at each call."""
        return None

    async def close(self) -> None:
        self._closed = True
        await asyncio.sleep(LEAVE_S)

    async def _get(self, key: str, unless: str | None) -> tuple[bytes, str] | None:
        from obstore import get_async
        from obstore.exceptions import NotModifiedError

        async def whole() -> tuple[bytes, str]:
            options: Any = None if unless is None else {"if_none_match": self._sent(unless)}
            found = await get_async(self._reads, key, options=options)
            return bytes(await found.bytes_async()), self._etag(found.meta)

        try:
            return await self._send("GET", key, whole, NotModifiedError, FileNotFoundError)
        except (NotModifiedError, FileNotFoundError):
            return None

    async def _all(self, prefix: str, after: str | None = None, limit: int | None = None) -> Listed:
        """What stands after that key, in the server's order; with a limit the first that it shows."""
        from obstore import list as list_objects

        folder = prefix[: prefix.rfind("/") + 1].rstrip("/")
        ordered = self.lists_in_byte_order or f"{folder}/" in layout.FLAT
        place = after if after is None or ordered else _before_folders(prefix, after)
        offset = max((each for each in (_before(prefix), place) if each), default=None)

        async def pages() -> Listed:
            found: Listed = []
            pages_seen = False
            async for page in list_objects(self._reads, folder or None, offset=offset, chunk_size=DELETES_MAX):
                self.requests["LIST"] += 1 if pages_seen else 0
                pages_seen = True
                passed = self._matching(page, prefix, after, found)
                if passed or (limit is not None and len(found) >= limit):
                    break
            return found[:limit]

        return await self._send("LIST", prefix, pages)

    @staticmethod
    def _matching(page: Sequence[ObjectMeta], prefix: str, after: str | None, found: Listed) -> bool:
        """Adds what has the prefix. True if the listing is past it: keys with one prefix stand together."""
        for meta in page:
            if meta["path"].startswith(prefix):
                if after is not None and meta["path"] <= after:
                    continue
                found.append((meta["path"], _bare(meta["e_tag"])))
            elif meta["path"] > prefix:
                return True
        return False

    async def _send(self, verb: str, key: str, request: Callable[[], Awaitable[T]], *known: type[BaseException]) -> T:
        """The answer. Raises errors of the classes `known` as they are, and all others as the store's."""
        from obstore.exceptions import BaseError

        for number in range(THROTTLED_TRIES_MAX):
            if self._closed:
                raise Unavailable(f"the store {self.name} was closed; open it again")
            self.requests[verb] += 1
            try:
                return await request()
            except (BaseError, OSError, ValueError) as error:
                answer = without_body(error)
                if isinstance(error, known) and not answer.no_bucket:
                    raise
                if not answer.throttled or number + 1 == THROTTLED_TRIES_MAX:
                    raise problem_of(error, self.name, f"{verb} {key}") from error
            await asyncio.sleep(_pause_s(key, number))
        raise AssertionError("the last try returns or raises")

    def _made(self, answer: PutResult) -> str:
        self.versioned = answer["version"] is not None
        return self._etag(answer)

    def _etag(self, answer: PutResult | ObjectMeta) -> str:
        return (self._by_version and answer["version"]) or _bare(answer["e_tag"])

    def _sent(self, etag: str) -> str:
        return f'"{etag}"' if self.etag_form == "quoted" else etag


def _bare(etag: str | None) -> str:
    return (etag or "").removeprefix("W/").strip('"')


def _before(prefix: str) -> str:
    """A text right before all keys with that prefix, and after the folder whose name is a part of it."""
    if not prefix or prefix.endswith("/"):
        return ""
    lower = _ALPHABET.find(prefix[-1]) - 1
    if lower >= 0:
        return prefix[:-1] + _ALPHABET[lower] + _AFTER_ALL
    return "" if prefix[:-1].endswith("/") else prefix[:-1]


def _before_folders(prefix: str, after: str) -> str:
    """A place from which no folder is left out whose name begins the name at `after` and whose keys are greater.

    Servers that keep folders list `a/1` before `a-1`; after `a-1` they no longer show it.
    """
    folder = prefix[: prefix.rfind("/") + 1]
    if not after.startswith(folder):
        return after
    parts = after[len(folder) :].split("/")
    for number, part in enumerate(parts):
        cut = min((place for mark in "%-." if (place := part.find(mark)) >= 0), default=-1)
        if cut > 0 or number == len(parts) - 1:
            return _before(folder + "/".join([*parts[:number], part[:cut] if cut > 0 else part]))
    return after


def _pause_s(key: str, number: int) -> float:
    """Doubles with each try. The key and the number spread the clients that were refused at the same moment."""
    share = blake2b(f"{key} {number}".encode(), digest_size=2).digest()[0] / 255
    return float(min(BACKOFF_MAX_S, BACKOFF_S * 2**number) * (0.5 + share / 2))
