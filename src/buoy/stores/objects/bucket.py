"""Bucket: all that the object-layout store asks of a storage. Folders, memory and S3 can keep it.

Invariants: `create` and `replace` are atomic against each other and all or nothing; of many at once one wins. An
answered write is durable, and every later `get` and `list` sees it. `Unavailable` means that the write may have
happened. A caller that replaces an object gives each body a number of its own, since an etag may be only the body's
hash.
Absent on purpose: transactions, renames, conditional deletes, clocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from buoy.errors import BadInput
from buoy.ports.maintenance import Refusal

# So many names tell that something else uses this place.
FOREIGN_MAX = 100
# S3 allows 1,024 bytes; a file name 255.
KEY_CHARS_MAX = 512
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~%-]*(/[A-Za-z0-9_%][A-Za-z0-9._~%-]*)*\Z")


class Exists(Exception):
    """`create`: something has that key already. It may be this write, sent twice: compare a nonce."""


class Changed(Exception):
    """`replace`: the object is no longer the one with that etag, or is not there."""


class Bucket(Protocol):
    """Named objects, each with an etag that tells its versions apart."""

    @property
    def name(self) -> str:
        """Which bucket it is, for people: its URL without secrets."""
        ...

    async def create(self, key: str, data: bytes) -> str:
        """Writes a new object and gives its etag. Raises `Exists`."""
        ...

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        """Overwrites exactly that version and gives the new etag. Raises `Changed`."""
        ...

    async def put(self, key: str, data: bytes) -> str:
        """Writes the object whatever is there and gives its etag. Only for hints: the last writer wins."""
        ...

    async def get(self, key: str) -> tuple[bytes, str] | None:
        """Body and etag, or None if there is positively no such object."""
        ...

    async def get_unless(self, key: str, etag: str) -> tuple[bytes, str] | None:
        """Body and etag of another version than that one; None if that version is there, or no object."""
        ...

    async def foreign(self, prefix: str) -> list[str]:
        """Names at that place that are no keys: `list` passes over them. At most `FOREIGN_MAX`."""
        ...

    async def list_etags(
        self, prefix: str, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, str]]:
        """As `list`, each key with its etag: one request shows which of many objects were written since a look."""
        ...

    async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """The keys with that prefix in byte order; only those greater than `after`; at most `limit`."""
        ...

    async def delete(self, key: str) -> None:
        """Removes the object; nothing happens if there is none."""
        ...

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Removes all of them, in as few requests as the storage allows. After an error some may be left."""
        ...

    def pulse(self) -> int | None:
        """Differs after others created something. Cheap enough for every 50 ms; None if this bucket cannot tell."""
        ...

    def durability(self) -> str | None:
        """Why what was answered may be lost anyway; None if it may not."""
        ...

    async def refusal(self) -> Refusal | None:
        """Why it takes no more data now, by an attempt that leaves nothing behind; None: it does, as it seems."""
        ...

    async def reopen(self) -> Bucket:
        """Another bucket with the same objects. The caller closes it."""
        ...

    async def close(self) -> None: ...


def is_key(key: str) -> bool:
    """Whether an object may have that key."""
    return len(key) <= KEY_CHARS_MAX and _KEY.match(key) is not None


def check_key(key: str) -> str:
    """The key, or a refusal: nothing absolute, no `..`, nothing that a path or an address would read."""
    if not is_key(key):
        raise BadInput(f"object key {key[:80]!r} is not allowed: letters, digits and . _ ~ % - between single slashes")
    return key
