"""The system: real time, ids, threads, and proof of life and death by processes.

Invariants: a runner of this very process is never dead. Death is only ever concluded from something that a living
process cannot show (a lock that can be had, another boot, a PID that is gone or was given to somebody else); what
cannot be read proves nothing.
The only file that may ask for the time, for randomness or for a thread.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from buoy.config import configured_host
from buoy.core.ids import RunnerId
from buoy.ports import Evidence, RunnerInfo, RunnerRecord

# No letters that people mix up, and in the order of the characters, so that ids sort by time.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_TIME_CHARS = 10
_RANDOM_CHARS = 10
_PROC = Path("/proc")


class SystemClock:
    """The clocks of this machine."""

    now = staticmethod(time.time)
    # Never set back. It stands still while the machine sleeps (CLOCK_BOOTTIME would not), and so do the beats: ages
    # measured by it make nobody look silent after a laptop wakes up.
    monotonic = staticmethod(time.monotonic)


# Another number in every forked child. Asking for the process id would be a system call for every commit.
_life = 0


def _forked() -> None:
    global _life
    _life += 1


os.register_at_fork(after_in_child=_forked)


class SystemIds:
    """Unique without asking anybody."""

    def __init__(self) -> None:
        self._begin()

    def new(self, prefix: str = "") -> str:
        """`prefix`, the time in milliseconds, 50 random bits: later ids sort after earlier ones."""
        now_ms = time.time_ns() // 1_000_000
        return f"{prefix}{_base32(now_ms, _TIME_CHARS)}{_base32(secrets.randbits(50), _RANDOM_CHARS)}"

    def nonce(self) -> str:
        """Unique across processes by its random part, within one by counting."""
        if self._life != _life:
            # A forked child must not repeat its parent's nonces.
            self._begin()
        return f"{self._prefix}-{next(self._count)}"

    def _begin(self) -> None:
        self._life = _life
        self._prefix = secrets.token_hex(6)
        self._count = count(1)


def _base32(number: int, chars: int) -> str:
    """Two characters at a time."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(5 * (chars - 2), -1, -10)])


class SystemThreads:
    """Daemon threads: a step that never returns must not keep the process from ending."""

    def run(self, work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()


def host() -> str:
    """The name of this machine, or the one that it was given."""
    return configured_host() or socket.gethostname()


def boot_id() -> str:
    """Changes with every start of the machine; empty if it cannot be known."""
    return _text(_PROC / "sys/kernel/random/boot_id")


def pid_namespace() -> str:
    """In which world of PIDs this process lives: containers on one host number theirs anew."""
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def process_started(pid: int) -> str:
    """When that process began, in ticks since boot; empty if there is no such process (or no way to tell).

    Together with the PID it names one process: PIDs are given out again.
    """
    _, fields = _stat(pid)
    return fields[19] if len(fields) > 19 else ""


def _stat(pid: int) -> tuple[bool, list[str]]:
    """Whether the process is known to be gone, and what the kernel says about it after its name."""
    try:
        # The name stands in brackets and may hold anything, brackets too.
        return False, (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        # Without /proc (or with one that hides others) a missing file proves nothing.
        return _ended(pid), []
    except OSError:
        return False, []


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class Processes:
    """Proof by processes, for stores that have no place for lock files.

    A runner is seen if it lives in this world of PIDs: the same host, boot and PID namespace. Any other is elsewhere,
    also one of this host's last boot: two machines may bear one name.
    """

    def announce(self, runner: RunnerId) -> None:
        """Nothing: the process is the proof."""

    def withdraw(self, runner: RunnerId) -> None:
        """Nothing."""

    def sees(self, record: RunnerRecord) -> bool:
        info = record.info
        there = (info.host, info.boot_id, info.pid_namespace)
        # What could not be known at registration proves nothing, though it be the same here.
        return all(there) and there == (host(), boot_id(), pid_namespace())

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        if not self.sees(record) or not process_gone(record.info.pid, record.info.process_started):
            return None
        return {"proof": "the process is gone", **about_process(record.info)}

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        """None: a name alone tells of no process."""
        return None

    def doubt(self, record: RunnerRecord) -> str | None:
        """Only a runner whose record cannot be read: nothing tells which process it is."""
        return record.unreadable

    def stopped(self, record: RunnerRecord) -> bool:
        return self.sees(record) and process_stopped(record.info)


def process_stopped(info: RunnerInfo) -> bool:
    """Whether the kernel says of that very process that a signal has stopped it."""
    if not info.pid_namespace or info.pid_namespace != pid_namespace() or not info.process_started:
        return False
    _, fields = _stat(info.pid)
    return len(fields) > 19 and fields[19] == info.process_started and fields[0] in ("T", "t")


def about_process(info: RunnerInfo) -> Evidence:
    """Which process an evidence is about."""
    return {"host": info.host, "pid": info.pid, "boot_id": info.boot_id}


def process_gone(pid: int, started: str) -> bool:
    """Whether the process of that PID and start time certainly runs no more. Unreadable is not gone."""
    gone, fields = _stat(pid)
    if gone:
        return True
    if len(fields) <= 19 or not started:
        return False
    return fields[19] != started or fields[0] in ("Z", "X")
