"""Unreadable records: what a store meets and cannot read, as values.

Invariants: only what is wrong with a record itself counts as unreadable. A store that gives no answer (`Unavailable`,
`StoreUnusable`, errors of SQLite) is another matter, and those errors pass through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from buoy.core.ids import RunnerId
from buoy.core.times import StoreTime
from buoy.errors import CorruptLog
from buoy.ports.records import Beat, Broken, RunnerInfo, RunnerRecord

T = TypeVar("T")

# Bytes that are no JSON, or not the JSON of the record.
GARBLED = (msgspec.MsgspecError, UnicodeError, RecursionError)
# What the code that makes a record of stored values raises when these are not what it ever wrote.
UNREADABLE = (CorruptLog, *GARBLED, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError)
# So many unreadable records are remembered, to report each once; a listing names all of them.
MET_MAX = 1_000


class Met:
    """What one store of this process could not read. Each is reported once, though every look meets it again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._unreported: list[Broken] = []

    def note(self, broken: Broken) -> Broken:
        if len(self._known) >= MET_MAX:
            self._known.clear()
        if self._known.get((broken.kind, broken.id)) != broken.reason and len(self._unreported) < MET_MAX:
            self._known[broken.kind, broken.id] = broken.reason
            self._unreported.append(broken)
        return broken

    def take(self) -> tuple[Broken, ...]:
        unreported, self._unreported = self._unreported, []
        return tuple(unreported)


def broken(kind: Literal["run", "runner", "schedule", "task"], id: str, place: str, error: BaseException) -> Broken:
    """That record as a value. An error that is none of ours is named by its class."""
    why = str(error) if isinstance(error, CorruptLog) else f"{type(error).__name__}: {error}"
    return Broken(kind, id, why, place)


def decoded(decode: Callable[[bytes], T], data: bytes, place: str) -> T:
    """The stored bytes as a record; `CorruptLog`, with their place, if they are none."""
    try:
        return decode(data)
    except (*GARBLED, TypeError) as error:
        raise CorruptLog(f"{place} cannot be read: {error}") from error


def nameless(runner: RunnerId, reason: str) -> RunnerRecord:
    """A runner record with nothing known except the id."""
    info = RunnerInfo(
        id=runner, host="", boot_id="", pid_namespace="", pid=0, process_started="", nonce="", queues=(), role="unknown"
    )
    never = StoreTime(0.0)
    return RunnerRecord(info=info, registered_at=never, beat_at=never, beat=Beat(number=0), unreadable=reason)
