"""Notes: what really happened in a scenario, kept outside of the store, in the order in which it happened.

Invariant: a note is safe when `add` returns, even if the process is killed right after.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, Protocol

import msgspec

What = Literal[
    "process",  # a process began
    "write",  # the engine is about to write
    "durable",  # a leaf's end is durable
    "hidden",  # a branch was made: what was done may be done again
    "claimed",  # a run was taken over
    "crash",
    "body",  # a step's body begins
    "key",  # it looked at its idempotency key
    "stubbed",
    "swallowed",
    "impure",  # workflow code looked at something that is different at every replay
    "blocked",  # it called something that blocks
    "forgotten",  # it made a durable call and never awaited it
    "ended",  # how the process came to its end
]


# The text of a body that is a command.
COMMAND = "command"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened, in the process of that number."""

    what: What
    process: int = 0
    run: str = ""
    leaf: str = ""
    step: str = ""
    attempt: int = 0
    key: str = ""
    text: str = ""
    # What code caught that it must not catch; empty if it only failed.
    caught: str = ""
    number: int = 0
    # At a crash: the time of the workflow.
    at: float = 0.0
    # Of a call that blocks: how long, in real seconds.
    took_s: float = 0.0
    # Real seconds, from the machine's monotonic clock.
    real_s: float = 0.0


class Notes(Protocol):
    """Where notes go."""

    def add(self, note: Note) -> None: ...


class Notebook:
    """Notes in memory."""

    def __init__(self) -> None:
        self.notes: list[Note] = []

    def add(self, note: Note) -> None:
        self.notes.append(note)


class NoteFile:
    """Notes in a file that several processes write, one line each."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, note: Note) -> None:
        os.write(self._descriptor, msgspec.json.encode(note) + b"\n")

    @staticmethod
    def notes_in(path: Path) -> list[Note]:
        """What was noted there so far; nothing yet if no process got that far."""
        data = path.read_bytes() if path.exists() else b""
        return [msgspec.json.decode(line, type=Note) for line in data.splitlines()]
