"""Advice: what a person can do about a run, as data: a kind, a command that can be run, and words.

Invariants: the kind follows from the words of the command alone, so that the text can be reworded at any time. The
command line takes every command as it stands, once its blanks are filled in.
"""

from __future__ import annotations

import shlex
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal[
    "answer",
    "signal",
    "pause",
    "resume",
    "release",
    "retry",
    "jump",
    "cancel",
    "recover",
    "migrate",
    "start_worker",
    "drive",
    "repair",
    "purge",
    # Only shows something.
    "look",
    # Something that no command of Buoy does: correct the code, free some space...
    "act",
]
# By the verb of the command, or by its two words.
_KINDS: dict[str, Kind] = {
    "answer": "answer",
    "signal": "signal",
    "pause": "pause",
    "resume": "resume",
    "release": "release",
    "retry": "retry",
    "jump": "jump",
    "cancel": "cancel",
    "recover": "recover",
    "sweeper": "recover",
    "migrate": "migrate",
    "worker": "start_worker",
    "runner": "start_worker",
    "jobs": "look",
    "sync-status": "recover",
    "reset": "retry",
    "disable": "recover",
    "watch": "recover",
    "slurm": "recover",
    "slurm allocations": "look",
    "run": "drive",
    "purge": "purge",
    "why": "look",
    "events": "look",
    "logs": "look",
    "result": "look",
    "status": "look",
    "doctor": "look",
}


class Blank(str):
    """A word of a command that a person replaces. It is written in capitals: FILE.py, STEP."""

    __slots__ = ()


class Advice(msgspec.Struct, frozen=True):
    """One thing that a person can do. Without a command it is done outside of Buoy.

    `blanks`: the words of the command that a person must replace first. `env`: variables that the command needs.
    """

    kind: Kind
    text: str
    command: str | None = None
    blanks: tuple[str, ...] = ()
    env: dict[str, str] = {}

    @property
    def typed(self) -> str:
        """The command as it is typed in a shell, after the variables that it needs."""
        set_first = "".join(f"{name}={shlex.quote(value) if value else ''} " for name, value in self.env.items())
        return f"{set_first}{self.command or ''}"

    @property
    def line(self) -> str:
        """As a person reads it."""
        return self.text if self.command is None else f"{self.text}: {self.typed}"


# Stands for the id of the run in the words of a hint.
RUN = "RUN"


class Hint(msgspec.Struct, frozen=True):
    """What a person can do, and the words of the command for it. `RUN` stands for the run's id."""

    text: str
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text if not self.command else f"{self.text}: `buoy {' '.join(self.command)}`"


def act(text: str) -> Advice:
    """Something that no command of Buoy does."""
    return Advice("act", text)


def kind_of(words: tuple[str, ...]) -> Kind:
    """What a command does, by its own words."""
    if "--dry-run" in words:
        return "look"
    if "--fix" in words:
        return "repair"
    return _KINDS.get(" ".join(words[:2])) or _KINDS[words[0]]


def each_once(found: list[Advice]) -> tuple[Advice, ...]:
    """Each command once, where it is named first."""
    kept: dict[str, Advice] = {}
    for each in found:
        kept.setdefault(each.command or each.text, each)
    return tuple(kept.values())
