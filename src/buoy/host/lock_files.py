"""Lock files: proof of life and death on this host, by POSIX locks that end with their process.

Invariants: a runner of this process is never dead. A lock counts as held only if the kernel says so; what cannot
be opened or read is unknown, and proves neither life nor death. Looking needs no more than permission to read.
The file names the process that holds it, so that its end can be proven without the runner's record.
A runner removes its file when it stops. The file of a runner that was declared dead is removed too. An empty file
stays: its process may be about to lock it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import msgspec

from buoy.core.ids import RunnerId
from buoy.errors import StoreUnusable
from buoy.host.processes import (
    Processes,
    about_process,
    boot_id,
    host,
    pid_namespace,
    process_gone,
    process_started,
    process_stopped,
    same_world,
)
from buoy.ports.host import Sight
from buoy.ports.records import Evidence, Proof, RunnerInfo, RunnerRecord

# A lock file holds one line; anything longer is none of ours.
_BYTES_MAX = 4096
_SUFFIX = ".lock"
# Files that one look goes through: a sweep must not take minutes. The next one continues: removed files are gone.
_FILES_MAX = 2_000
_ADVICE = {
    errno.ENOSPC: "its disk is full; free some space",
    errno.EDQUOT: "the disk quota of this user is used up; free some space",
}


class LockState(NamedTuple):
    """`why`: what kept this process from looking, if the state is unknown."""

    state: Literal["held", "free", "missing", "unknown"]
    why: str = ""


class LockFiles:
    """Proof by lock files: each runner holds a POSIX lock on its own file until its process ends, however it ends.

    POSIX locks belong to the process, and closing *any* descriptor of the file drops them. So a file that this process
    holds is never opened a second time: all instances share one table of what is held here.
    Announce before registering: a runner that others can see without its lock would be taken for dead.
    """

    # Path -> (pid, descriptor). Shared by all instances of the process, since the locks are.
    _held: ClassVar[dict[Path, tuple[int, int]]] = {}
    _guard: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, lock_dir: Path) -> None:
        self._dir = lock_dir.absolute()
        # For runners that speak to this store through another process, and have no lock here.
        self._processes = Processes()

    @property
    def proof(self) -> Proof:
        return "lock"

    def announce(self, runner: RunnerId) -> None:
        path = self._path(runner)
        with self._guard:
            if self._held_here(path):
                return
            try:
                self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = _locked(path, fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT)
                self._held[path] = (os.getpid(), descriptor)
                os.ftruncate(descriptor, 0)
                os.write(descriptor, msgspec.json.encode(_this_process(runner)))
            except OSError as error:
                advice = _ADVICE.get(error.errno or 0, "correct the permissions, and use each runner id once")
                raise StoreUnusable(f"the lock file {path} cannot be made and locked: {error}; {advice}") from error

    def withdraw(self, runner: RunnerId) -> None:
        """Gives the lock back, and takes the file away while it is still locked."""
        path = self._path(runner)
        with self._guard:
            if self._held_here(path):
                path.unlink(missing_ok=True)
                os.close(self._held.pop(path)[1])

    async def look(self, records: Iterable[RunnerRecord]) -> dict[RunnerId, Sight]:
        chosen = tuple(records)
        return await asyncio.to_thread(lambda: {each.info.id: self.sight(each) for each in chosen})

    def sight(self, record: RunnerRecord) -> Sight:
        """Locks reach across containers, but not to another host: a file that is free here may be held there."""
        info = self._info(record)
        if info.proof not in (None, "lock"):
            return self._processes.sight(record)
        if info.host != host():
            return Sight(doubt=None if info.host else record.unreadable)
        found = self.lock_state(info.id)
        if found.state == "missing" and not (same_world(info) or _rebooted(info)):
            # Its lock has no name any more, and its process lives, or lived, where it cannot be looked at from here.
            return Sight(doubt=record.unreadable)
        return Sight(seen=True, proof=_proof(info, found), doubt=found.why or None, stopped=process_stopped(info))

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        info = self._holder_of(runner)
        return None if info is None or info.host != host() else _proof(info, self.lock_state(info.id))

    def lock_state(self, runner: RunnerId) -> LockState:
        """True if a process holds that runner's lock, as far as this process may look."""
        path = self._path(runner)
        with self._guard:
            if self._held_here(path):
                return LockState("held")
            try:
                # Shared: two who look at the same moment must not take each other for the owner. Open for reading
                # only: every process that may read the store can tell a dead worker from a living one.
                descriptor = _locked(path, fcntl.LOCK_SH, os.O_RDONLY)
            except FileNotFoundError:
                return LockState("missing")
            except _HeldByAnother:
                return LockState("held")
            except OSError as error:
                return LockState("unknown", f"its lock file {path} cannot be looked at: {error.strerror or error}")
            os.close(descriptor)
        return LockState("free")

    async def left_behind(self) -> list[RunnerId]:
        return await asyncio.to_thread(self._left_behind)

    def _left_behind(self) -> list[RunnerId]:
        try:
            with os.scandir(self._dir) as entries:
                names = [entry.name for entry in islice(entries, _FILES_MAX) if _written(entry)]
        except FileNotFoundError:
            return []  # no runner ever announced itself here
        runners = [RunnerId(name.removesuffix(_SUFFIX)) for name in names]
        return [runner for runner in runners if self.lock_state(runner).state == "free"]

    async def clear(self, runners: Iterable[RunnerId]) -> int:
        chosen = tuple(runners)
        return await asyncio.to_thread(lambda: sum(map(self._clear, chosen)))

    def _clear(self, runner: RunnerId) -> bool:
        """Removes a file while this process holds its lock: so no other process can hold it, or come to hold it."""
        path = self._path(runner)
        with self._guard:
            if self._held_here(path):
                return False
            try:
                descriptor = _locked(path, fcntl.LOCK_EX, os.O_RDWR)
            except OSError:
                return False  # held, gone or not to be touched by this user: it is met again
            try:
                path.unlink()
            finally:
                os.close(descriptor)
        return True

    def _info(self, record: RunnerRecord) -> RunnerInfo:
        """Which process a runner is: as its record says, or as its lock file does if the record cannot be read."""
        if record.info.host or record.unreadable is None:
            return record.info
        return self._holder_of(record.info.id) or record.info

    def _holder_of(self, runner: RunnerId) -> RunnerInfo | None:
        """What the process that made the lock file wrote into it."""
        path = self._path(runner)
        with self._guard:
            if self._held_here(path):
                return _this_process(runner)
            # Whatever cannot be read there is not known, and proves nothing.
            with suppress(OSError, msgspec.MsgspecError, UnicodeError), path.open("rb") as file:
                found = msgspec.json.decode(file.read(_BYTES_MAX), type=RunnerInfo)
                return found if found.id == runner else None
        return None

    def _held_here(self, path: Path) -> bool:
        # A forked child inherits this table, but not the locks.
        held = self._held.get(path)
        return held is not None and held[0] == os.getpid()

    def _path(self, runner: RunnerId) -> Path:
        return self._dir / f"{runner}{_SUFFIX}"


def _written(entry: os.DirEntry[str]) -> bool:
    """Whether it is a lock file whose process has locked it, and named itself in it."""
    try:
        return entry.name.endswith(_SUFFIX) and entry.stat(follow_symlinks=False).st_size > 0
    except FileNotFoundError:
        return False


def _proof(info: RunnerInfo, found: LockState) -> Evidence | None:
    about = about_process(info)
    match found.state:
        case "held" | "unknown":
            # Even under another boot id: two machines may bear one name.
            return None
        case "free" if info.boot_id == boot_id():
            return {"proof": "lock free", **about}
        case "missing" if info.boot_id == boot_id():
            # The file was removed; its lock may live on without a name. Only the process itself can tell.
            gone = same_world(info) and process_gone(info.pid, info.process_started)
            return {"proof": "the process is gone", **about} if gone else None
        case _ if _rebooted(info):
            return {"proof": "the host was rebooted", **about, "boot_id_now": boot_id()}
        case _:
            return None


def _rebooted(info: RunnerInfo) -> bool:
    here = boot_id()
    return bool(here and info.boot_id) and info.boot_id != here


class _HeldByAnother(OSError):
    """The kernel refused the lock because another process has it."""


def _locked(path: Path, kind: int, flags: int) -> int:
    """A descriptor of that file with the lock on it. The lock is the process's; closing the descriptor drops it."""
    # Not blocking: something else of that name, as a pipe, must not block this look.
    descriptor = os.open(path, os.O_CLOEXEC | os.O_NONBLOCK | flags, 0o600)
    try:
        _lock(descriptor, kind)
        # A file that was replaced in between is not the one that others will look at.
        mine, named = os.fstat(descriptor), path.stat()
        if not stat.S_ISREG(mine.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if (mine.st_dev, mine.st_ino) != (named.st_dev, named.st_ino):
            raise OSError(errno.ESTALE, "the lock file was replaced", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, kind: int) -> None:
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        # Only here do these two mean that the lock is taken; from `open` they mean that this user may not.
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _HeldByAnother(error.errno, error.strerror) from error
        raise


def _this_process(runner: RunnerId) -> RunnerInfo:
    pid = os.getpid()
    return RunnerInfo(
        id=runner,
        host=host(),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        pid=pid,
        process_started=process_started(pid),
        nonce="",
    )
