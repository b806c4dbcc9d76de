"""Spec words: the words of the simple commands in a `run:` step, and which commands write into which.

Invariant: a word knows only what is fixed in it. What the shell would expand there is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

_BEFORE_COMMANDS = frozenset(
    ("if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "command", "builtin", "exec")
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Word(NamedTuple):
    """A word of a command: what of it is fixed, and where it stands."""

    known: str
    begin: int
    end: int


class SimpleCommand(msgspec.Struct):
    """A simple command: its words, and the here-documents that it reads."""

    words: list[Word] = []
    bodies: list[tuple[int, int]] = []


def name_of(words: Sequence[Word]) -> int:
    """The place of the command's name: behind assignments and words of the shell."""
    for place, word in enumerate(words):
        if word.known not in _BEFORE_COMMANDS and not _ASSIGNMENT.match(word.known):
            return place
    return len(words)


class CommandReader:
    """Gathers the words of simple commands, and which commands write into which."""

    def __init__(self, pipelines: list[list[SimpleCommand]]) -> None:
        self._pipelines = pipelines
        self._place = 0
        self._begin: int | None = None
        self._known = ""
        self._skips = False
        self._pipeline: list[SimpleCommand] = []
        self.command = SimpleCommand()
        self.in_case = False

    @property
    def in_word(self) -> bool:
        return self._begin is not None

    def at(self, place: int) -> None:
        self._place = place

    def begin_word(self) -> None:
        if self._begin is None:
            self._begin, self._known = self._place, ""

    def add(self, known: str) -> None:
        self._known += known

    def end_word(self) -> None:
        if self._begin is None:
            return
        if not self._skips:
            self.command.words.append(Word(self._known, self._begin, self._place))
            self.in_case = self.in_case or self._is_case()
        self._begin, self._skips = None, False

    def redirects(self) -> None:
        """What comes next is a file or a descriptor, and no argument. A number before it is a descriptor, too."""
        if self._begin is not None and self._known.isdigit():
            self._begin = None
        self.end_word()
        self._skips = True

    def end_command(self, *, pipes: bool = False) -> None:
        self.end_word()
        self._skips = False
        if self.command.words or self.command.bodies:
            self._pipeline.append(self.command)
        self.command = SimpleCommand()
        if not pipes and self._pipeline:
            self._pipelines.append(self._pipeline)
            self._pipeline = []

    def _is_case(self) -> bool:
        words = self.command.words
        return words[-1].known == "case" and name_of(words) == len(words) - 1
