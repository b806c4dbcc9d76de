"""Folder locks: one writer at a time for each key of a folder bucket, among threads and processes.

Invariants: a lock dies with its process. A process that is stopped keeps its lock, so no caller waits for one without
an end: it gets `Unavailable`, with the way to the holder. A close ends all waits.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from buoy.errors import Unavailable

LOCKS = 64
# A lock is held for one small write. After so long its holder does not run (Ctrl-Z, a frozen container), or its disk
# hangs. The callers must learn of it: a thread that waits in the kernel reports nothing and cannot be stopped.
LOCK_WAIT_MAX_S = 30.0
# Pauses between two tries, as in the lanes of SQLite.
_PAUSE_FIRST_S = 0.0005
_PAUSE_MAX_S = 0.01


class FolderLocks:
    """Locks for keys, a fixed number of them, as files of one directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closing = threading.Event()
        # Within a process a lock file's lock would be enough too, but waiting here holds no file open.
        self._here = [threading.Lock() for _ in range(LOCKS)]

    def close(self) -> None:
        """Ends all waits, of now and to come."""
        self._closing.set()

    @contextmanager
    def held(self, key: str) -> Iterator[None]:
        slot = int.from_bytes(blake2b(key.encode(), digest_size=2).digest(), "big") % LOCKS
        path = self._folder / f"{slot:02}"
        with self._here[slot]:
            number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._wait(number, path)
                try:
                    yield
                finally:
                    # Said aloud: a process that a step has forked in this moment has the file open as well.
                    fcntl.flock(number, fcntl.LOCK_UN)
            finally:
                os.close(number)

    def _wait(self, number: int, path: Path) -> None:
        waited_s, pause_s = 0.0, _PAUSE_FIRST_S
        while True:
            try:
                # `flock`, not POSIX locks: those are per process and dropped when anybody in it closes the file.
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if waited_s >= LOCK_WAIT_MAX_S:
                    raise Unavailable(
                        f"another process has held the lock {path} for {LOCK_WAIT_MAX_S:g} s; find it with "
                        f"`fuser -v {path}`, and continue it or end it"
                    ) from error
            if self._closing.wait(pause_s):
                raise Unavailable(f"the store was closed before its lock {path} was free")
            waited_s += pause_s
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
