"""The gate: every store call of a process has a name and a number, and the process can be struck just before or after.

`after commit 3`: the store has answered the third commit, and the caller does not know it yet. The witness hears first
what the store has acknowledged, so that no acknowledged write can be lost without being missed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from buoy.ports.records import Committed
from buoy.stores.objects.store import ObjectStore
from buoy.stores.postgres.store import PostgresStore
from buoy.stores.sqlite.store import SqliteStore

from .flows import note, open_witness

CALLS = (
    "requeue_orphan", "beat", "declare_dead", "claim_tasks", "commit", "define", "definition", "events", "find_runs",
    "inbox", "orphans", "unread_runs", "register", "release", "run", "runners", "mark_read", "send", "suspect",
)  # fmt: skip
STORES: dict[str, type[Any]] = {"sqlite": SqliteStore, "folder": ObjectStore}
ALL_STORES: dict[str, type[Any]] = {**STORES, "postgres": PostgresStore}
FAULTS = ("kill", "term", "stop", "zombie", "full", "readonly")
BALLAST = "ballast"


class Point(NamedTuple):
    """Where a process is struck."""

    call: str
    number: int
    side: str

    def __str__(self) -> str:
        return f"{self.side} {self.call} {self.number}"


class Gate:
    """Between a process and its store. Without a point it only counts."""

    def __init__(self, point: Point | None = None, strike: Callable[[], None] = lambda: None) -> None:
        self.counts: Counter[str] = Counter()
        self._point = point
        self._strike = strike
        self._lock = threading.Lock()

    def install(self, store: str) -> None:
        for name in CALLS:
            self._wrap(ALL_STORES[store], name)

    def _wrap(self, owner: type[Any], name: str) -> None:
        real = getattr(owner, name)

        @wraps(real)
        async def call(store: Any, *args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.counts[name] += 1
                number = self.counts[name]
            self._pass(Point(name, number, "before"))
            answer = await real(store, *args, **kwargs)
            if name == "commit":
                _acknowledge(args[0], answer)
            self._pass(Point(name, number, "after"))
            return answer

        setattr(owner, name, call)

    def _pass(self, point: Point) -> None:
        if point == self._point:
            note("struck", "-", point.call)
            self._strike()


def _acknowledge(writes: Any, outcomes: Any) -> None:
    for write, outcome in zip(writes, outcomes, strict=True):
        if isinstance(outcome, Committed):
            note("commit", write.run_id, f"{write.events[0].seq}:{len(write.events)}:{write.events[0].nonce}")


# ---- what strikes


def strike_of(fault: str, disk: Path) -> Callable[[], None]:
    """What a process does to itself at its point. The process that watches it does the rest."""
    match fault:
        case "kill":
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "term":
            return lambda: os.kill(os.getpid(), signal.SIGTERM)
        case "stop" | "zombie":
            return lambda: os.kill(os.getpid(), signal.SIGSTOP)
        case "full":
            return lambda: fill(disk / BALLAST)
        case _:
            return refuse_writes


def fill(path: Path) -> None:
    """Leaves no byte on the disk of that file."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    size = 1 << 16
    while size:
        try:
            os.write(handle, b"x" * size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            size //= 2
    os.close(handle)


# A read-only disk, as the kernel would tell of it: system calls that change files are refused with EROFS, for good. A
# mount cannot be made read-only under files that are open for writing, and that is what is wanted here.
_REFUSED = {
    "x86_64": (18, 296, 76, 77, 285, 82, 264, 316, 86, 265, 87, 263, 83, 258, 84, 88, 266, 85),
    "aarch64": (68, 70, 45, 46, 47, 38, 276, 37, 35, 34, 36),
}
_OPENS = {"x86_64": ((2, 1), (257, 2)), "aarch64": ((56, 2),)}
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _EROFS = 0x7FFF0000, 0x00050000 | errno.EROFS
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def can_refuse_writes() -> bool:
    return platform.machine() in _ARCH


def refuse_writes() -> None:
    """From now on no thread of this process can change a file by name or position, or open one for writing."""
    open_witness()
    machine = platform.machine()
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCH[machine]), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    for number in _REFUSED[machine]:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EROFS)]
    for number, argument in _OPENS[machine]:
        flags = 16 + 8 * argument
        code += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, flags), (_ANY_BIT, 0, 1, _CHANGES), (_RETURN, 0, 0, _EROFS)]
        code += [(_RETURN, 0, 0, _ALLOW)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    packed = b"".join(struct.pack("HBBI", *each) for each in code)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(code), packed)
    no_new_privileges, set_filter, all_threads = 38, 1, 1
    done = libc.prctl(no_new_privileges, 1, 0, 0, 0)
    done = done or libc.syscall(_SECCOMP[machine], set_filter, all_threads, ctypes.byref(program))
    if done:
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")
