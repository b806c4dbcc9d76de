"""Folder bucket: objects as files of a directory on this machine, for several processes at once.

Invariants: a file appears under its key whole or not at all (temporary file, sync, then link or rename, then sync of
the directory). `create` rests on `link`, which fails if the name is taken; `replace` and `delete` on an advisory lock
that dies with its process. Deletes are not synced. So a power cut may bring back old index entries; those name their
version, and readers recognise them. A few threads do all file work, never the event loop.
Names of this module's own at the top of the directory are no objects: `.tmp`, `.locks`, `.poke`, `runners-locks`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TypeVar

from buoy.errors import CorruptLog, Unavailable
from buoy.ports.maintenance import Refusal
from buoy.stores.file_identity import FileIdentity
from buoy.stores.objects.bucket import FOREIGN_MAX, Changed, Exists, check_key
from buoy.stores.objects.buckets.folder_errors import folder_problem
from buoy.stores.objects.buckets.folder_listing import foreign_names, keys_below, of_one_object
from buoy.stores.objects.buckets.folder_locks import FolderLocks
from buoy.stores.write_probe import write_refusal

T = TypeVar("T")

THREADS = 4
# A temporary file lives for milliseconds; one of this age belongs to a process that was killed.
LEFTOVER_AFTER_S = 3600.0
# `create` makes the directory again if a `delete` took it away, empty, in between. Many rounds mean something else.
MAKE_TRIES_MAX = 50


class FolderBucket:
    """Objects under one directory. Made by `FolderBucket.open`."""

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self._root = root
        self._durable = durable
        self._closed = False
        self._identity: FileIdentity | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="buoy-folder")
        self._locks = FolderLocks(root / ".locks")

    @classmethod
    async def open(cls, root: Path, *, durable: bool = True) -> FolderBucket:
        """The bucket in that directory, made if missing. `durable` False (tests only) skips the syncs."""
        bucket = cls(root, durable=durable)
        try:
            await bucket._run(bucket._prepare)
        except BaseException:
            await bucket.close()
            raise
        return bucket

    @property
    def name(self) -> str:
        return self._root.absolute().as_uri()

    async def reopen(self) -> FolderBucket:
        return await FolderBucket.open(self._root, durable=self._durable)

    async def create(self, key: str, data: bytes) -> str:
        check_key(key)
        return await self._run(lambda: self._create(key, data))

    async def replace(self, key: str, data: bytes, etag: str) -> str:
        check_key(key)
        return await self._run(lambda: self._replace(key, data, etag))

    async def put(self, key: str, data: bytes) -> str:
        check_key(key)
        return await self._run(lambda: self._put(key, data))

    async def get(self, key: str) -> tuple[bytes, str] | None:
        check_key(key)
        return await self._run(lambda: self._get(key))

    async def get_unless(self, key: str, etag: str) -> tuple[bytes, str] | None:
        found = await self.get(key)
        return None if found is None or found[1] == etag else found

    async def foreign(self, prefix: str) -> list[str]:
        return await self._run(lambda: list(islice(foreign_names(self._root, prefix), FOREIGN_MAX)))

    async def list_etags(
        self, prefix: str, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, str]]:
        return await self._run(lambda: list(islice(self._etags(prefix, after or ""), limit)))

    async def list(self, prefix: str, after: str | None = None, limit: int | None = None) -> list[str]:
        return await self._run(lambda: list(islice(keys_below(self._root, prefix, after or ""), limit)))

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._run(lambda: self._delete(key))

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.delete(key)

    def pulse(self) -> int | None:
        try:
            return (self._root / ".poke").stat().st_mtime_ns
        except OSError:
            return None

    def durability(self) -> str | None:
        return None if self._durable else "writes are not synced"

    async def refusal(self) -> Refusal | None:
        return await self._run(lambda: write_refusal(self._root / ".tmp"))

    async def close(self) -> None:
        self._closed = True
        self._locks.close()
        # Writes that are under way come to their end; nothing is left running.
        await asyncio.to_thread(self._pool.shutdown)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise Unavailable(f"the store {self.name} was closed; open it again")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._on_the_same_folder, work)
        except OSError as error:
            raise folder_problem(self._root, error) from error

    def watch(self, *names: str) -> None:
        """From now on every call looks whether the folder and these files are still those of now."""
        self._identity = FileIdentity(self._root, (self._root, *(self._root / name for name in names)))

    def _on_the_same_folder(self, work: Callable[[], T]) -> T:
        """Before, so that nothing is written into another folder; after, so that nothing lost is answered for, and what
        is not found because all was removed does not count as absent."""
        if self._identity is None:
            return work()
        self._identity.check()
        try:
            return work()
        finally:
            self._identity.check()

    def _prepare(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (".tmp", ".locks"):
            (self._root / name).mkdir(mode=0o700, exist_ok=True)
        if not (self._root / ".poke").exists():
            (self._root / ".poke").touch(mode=0o600)
        try:
            self._reap_leftovers()
        except OSError as error:
            # Where this user may not write, a store that is there can still be looked at.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise

    def _reap_leftovers(self) -> None:
        """Removes old temporary files. A new file tells the time of this file system, whatever the clocks say."""
        probe = self._write_temporary(b"")
        now = probe.stat().st_mtime
        probe.unlink()
        for path in (self._root / ".tmp").iterdir():
            with suppress(FileNotFoundError):
                if now - path.stat().st_mtime > LEFTOVER_AFTER_S:
                    path.unlink()

    def _create(self, key: str, data: bytes) -> str:
        path = self._root / key
        if path.exists():
            # Not the guard, which is `link`; only quicker than writing a file for nothing.
            raise Exists(key)
        temporary = self._write_temporary(data)
        try:
            self._into(path, lambda: os.link(temporary, path))
            self._sync_directory(path.parent)
        except FileExistsError as error:
            raise Exists(key) from error
        finally:
            temporary.unlink()
        self._poke()
        return _etag(data)

    def _into(self, path: Path, step: Callable[[], object]) -> None:
        """Makes the directory of `path` until the step no longer misses it."""
        for _ in range(MAKE_TRIES_MAX):
            try:
                step()
                return
            except FileNotFoundError:
                self._make_directory(path.parent)
        raise OSError(errno.EAGAIN, f"the directory of {path} vanishes again and again")

    def _make_directory(self, path: Path) -> None:
        if not path.parent.exists():
            self._make_directory(path.parent)
        # Missing again: a delete took the parent away. The caller tries again.
        with suppress(FileExistsError, FileNotFoundError):
            path.mkdir(mode=0o700)
        # Also if another process made it: it may not have come to its own sync yet.
        self._sync_directory(path.parent)

    def _replace(self, key: str, data: bytes, etag: str) -> str:
        path = self._root / key
        with self._locks.held(key):
            found = self._get(key)
            if found is None or found[1] != etag:
                raise Changed(key)
            temporary = self._write_temporary(data)
            try:
                temporary.replace(path)
            except BaseException:
                temporary.unlink()
                raise
            self._sync_directory(path.parent)
        return _etag(data)

    def _put(self, key: str, data: bytes) -> str:
        path = self._root / key
        with self._locks.held(key):
            temporary = self._write_temporary(data)
            self._into(path, lambda: temporary.replace(path))
            self._sync_directory(path.parent)
        self._poke()
        return _etag(data)

    def _etags(self, prefix: str, after: str) -> Iterator[tuple[str, str]]:
        for key in keys_below(self._root, prefix, after):
            try:
                found = self._get(key)
            except CorruptLog:
                found = b"", ""  # its reader says what is wrong; no version has this etag
            if found is not None:
                yield key, found[1]

    def _get(self, key: str) -> tuple[bytes, str] | None:
        try:
            data = (self._root / key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise of_one_object(error, key) from error
        return data, _etag(data)

    def _delete(self, key: str) -> None:
        path = self._root / key
        with self._locks.held(key):
            try:
                path.unlink(missing_ok=True)
            except IsADirectoryError:
                # Something else is in the file's place. It goes if it is empty.
                with suppress(OSError):
                    path.rmdir()
        # Empty directories would pile up and be walked by every listing.
        for parent in Path(key).parents:
            if parent == Path():
                return
            try:
                (self._root / parent).rmdir()
            except OSError:
                return

    def _write_temporary(self, data: bytes) -> Path:
        number, name = tempfile.mkstemp(dir=self._root / ".tmp")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                if self._durable:
                    os.fsync(number)
        except BaseException:
            Path(name).unlink()
            raise
        return Path(name)

    def _sync_directory(self, path: Path) -> None:
        if not self._durable:
            return
        try:
            number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            # A delete has emptied and removed it since: nothing is left to be made durable.
            return
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def _poke(self) -> None:
        """Gives the poke file another time. A random one: real ones repeat within a tick of the kernel's clock."""
        time_ns = secrets.randbelow(2**31) * 1_000_000_000 + secrets.randbelow(1_000_000_000)
        # Only a hint: every waiting task looks by itself from time to time.
        with suppress(OSError):
            os.utime(self._root / ".poke", ns=(time_ns, time_ns))


def _etag(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
