"""Processes of this machine: who a runner is, and proof of its life or death.

Invariants: a runner of this process is never dead. Death is concluded only from something that a living process
cannot show: a lock that can be had, another boot, a PID that is gone or was reused. A failed read proves nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from buoy.config import configured_host
from buoy.core.ids import RunnerId
from buoy.ports.host import Sight
from buoy.ports.records import Evidence, Proof, RunnerInfo, RunnerRecord

_PROC = Path("/proc")


def host() -> str:
    """The name of this machine, or the one that it was given."""
    return configured_host() or socket.gethostname()


def boot_id() -> str:
    """Changes with every start of the machine; empty if it cannot be known."""
    return _text(_PROC / "sys/kernel/random/boot_id")


def pid_namespace() -> str:
    """The PID namespace of this process: containers on one host number their own processes."""
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
        # The name is in brackets and may hold anything, brackets too.
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

    @property
    def proof(self) -> Proof:
        return "process"

    def announce(self, runner: RunnerId) -> None:
        """Nothing: the process is the proof."""

    def withdraw(self, runner: RunnerId) -> None:
        """Nothing."""

    async def look(self, records: Iterable[RunnerRecord]) -> dict[RunnerId, Sight]:
        chosen = tuple(records)
        return await asyncio.to_thread(lambda: {each.info.id: self.sight(each) for each in chosen})

    def sight(self, record: RunnerRecord) -> Sight:
        """A lock that this process cannot look at belongs to a process anyway. A runner that is judged by its
        beats, or by a scheduler, is not seen, wherever it runs. A record that cannot be read names no process."""
        info = record.info
        if info.proof in ("beats", "allocation") or not same_world(info):
            return Sight(doubt=record.unreadable)
        gone = process_gone(info.pid, info.process_started)
        proof: Evidence | None = {"proof": "the process is gone", **about_process(info)} if gone else None
        return Sight(seen=True, proof=proof, doubt=record.unreadable, stopped=process_stopped(info))

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        """None: a name alone tells of no process."""
        return None

    async def left_behind(self) -> list[RunnerId]:
        """None: a process leaves nothing behind."""
        return []

    async def clear(self, runners: Iterable[RunnerId]) -> int:
        """Nothing."""
        return 0


def same_world(info: RunnerInfo) -> bool:
    """Whether that runner's PID means the same here as there."""
    there = (info.host, info.boot_id, info.pid_namespace)
    # What could not be known at registration proves nothing, though it be the same here.
    return all(there) and there == (host(), boot_id(), pid_namespace())


def process_stopped(info: RunnerInfo) -> bool:
    """Whether the kernel says of that same process that a signal has stopped it."""
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
