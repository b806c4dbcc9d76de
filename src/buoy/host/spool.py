"""Spool files: unsent writes of one process in a private folder, until their store has them.

Invariants: the file is locked as long as its process lives, and it gets its name when it is locked: a process that
obtains the lock of a spool file knows that the other one is dead. Each record is synced before `keep`
returns. A last record that a crash cut off counts as not written. Folder and files are readable by their owner only.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from buoy.core.ids import RunId
from buoy.errors import BadInput
from buoy.ports.records import Write
from buoy.ports.rpc import CALLS

_LOG = logging.getLogger("buoy.engine")
_SUFFIX = ".spool"
_COMMIT = CALLS["commit"]
_KEPT, _DONE = b"keep", b"done"

Place = tuple[RunId, int]


class SpoolFile:
    """The spool of one process. Its file is made when the first write is kept."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}{_SUFFIX}"
        self._descriptor: int | None = None
        self._kept: dict[Place, Write] = {}

    @property
    def empty(self) -> bool:
        return not self._kept

    def keep(self, writes: Sequence[Write]) -> None:
        new = [write for write in writes if self._kept.get((write.run_id, write.after_seq)) is not write]
        if new:
            self._add(b"".join(_record(write) for write in new))
            self._kept.update({(write.run_id, write.after_seq): write for write in new})

    def forget(self, writes: Sequence[Write]) -> None:
        gone = [place for write in writes if (place := (write.run_id, write.after_seq)) in self._kept]
        if not gone or self._descriptor is None:
            return
        for place in gone:
            del self._kept[place]
        if self._kept:
            self._add(b"".join(b"%s %d %s\n" % (_DONE, after, run.encode()) for run, after in gone))
        else:
            os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        """An empty file is removed; one with writes is left for the next process."""
        if self._descriptor is not None:
            if self.empty:
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _add(self, data: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = _locked_file(self._path)
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)


def _locked_file(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return descriptor


def _record(write: Write) -> bytes:
    data = _COMMIT.encode_arguments({"writes": [write]})
    return b"%s %d\n%s\n" % (_KEPT, len(data), data)


def left_behind(folder: Path) -> list[Path]:
    """The spool files of that folder, of dead and of living processes."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


@contextmanager
def taken(path: Path) -> Iterator[list[Write] | None]:
    """The unsent writes of a dead process; None: it lives, or another process has taken them. Removed at a good end."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield None
        return
    try:
        # Without a name any more: another process has sent them in the meantime.
        about = os.fstat(descriptor)
        yield read_spool(os.pread(descriptor, about.st_size, 0)) if about.st_nlink else None
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def read_spool(data: bytes) -> list[Write]:
    """The writes that were kept and not forgotten."""
    kept: dict[Place, Write] = {}
    while data:
        head, mark, data = data.partition(b"\n")
        what, _, rest = head.partition(b" ")
        if not mark or what not in (_KEPT, _DONE):
            _LOG.warning("a spool file of unsent writes ends in a broken record; the records before it count")
            break
        if what == _DONE:
            after, _, run = rest.partition(b" ")
            kept.pop((RunId(run.decode()), int(after)), None)
            continue
        size = int(rest)
        if len(data) <= size:
            break  # the crash came before its end
        try:
            (write,) = _COMMIT.decode_arguments(data[:size])["writes"]
        except BadInput as error:
            _LOG.warning("an unsent write cannot be read, and is left out: %s", error)
        else:
            kept[write.run_id, write.after_seq] = write
        data = data[size + 1 :]
    return list(kept.values())
