"""The border to SQLite: its error codes as Buoy's errors, each with what the person can do.

Invariant: `Unavailable` means that the outcome of a commit may be unclear, or that waiting may help. `StoreUnusable`
means that nothing was written and only a person can change that.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from buoy.errors import NotWritten, Problem, StoreUnusable, Unavailable

# Primary codes; the low byte of every extended one.
_PRIMARY = 0xFF
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_FOR_A_PERSON = {
    sqlite3.SQLITE_NOTADB: "is not an SQLite database; name another file, or move this one away",
    sqlite3.SQLITE_CORRUPT: "is damaged; stop all runners, keep a copy, and repair it with `sqlite3 FILE .recover`",
    sqlite3.SQLITE_FULL: "has no room to grow: the disk is full; nothing was written; free some space, then try again",
    sqlite3.SQLITE_READONLY: "cannot be written; give this user write permission on the file and its folder",
    sqlite3.SQLITE_PERM: "may not be used by this user; correct the permissions of the file and its folder",
    sqlite3.SQLITE_AUTH: "may not be used by this user; correct the permissions of the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; see that its folder is there and that this user may write to it",
}


def busy(error: BaseException) -> bool:
    """Whether another connection had the lock. Then nothing has happened, and the whole transaction can be repeated."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) in _BUSY


def may_not_write(error: sqlite3.Error) -> bool:
    """Whether the user may lack the permission to write the file or its folder."""
    return _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


def translated(error: sqlite3.Error, path: Path) -> Problem:
    """The same trouble in Buoy's words. Raise it `from` the original."""
    advice = _FOR_A_PERSON.get(_code(error))
    if advice is not None:
        return StoreUnusable(f"{path} {advice} (SQLite says: {error})")
    if busy(error):
        return Unavailable(f"{path} is locked by another process for too long; find out which, or try again")
    return Unavailable(f"{path} gave no clear answer: {error}; read before you write again")


def closed(path: Path) -> NotWritten:
    """What every call on a closed store gets."""
    return NotWritten(f"the store {path} is closed; open it again")


def _code(error: BaseException) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else 0
