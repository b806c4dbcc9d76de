"""Spec quoting: in which quoting of the shell each value of a command stands.

A command is scanned once, from left to right, as `/bin/sh` reads it: quotes, `$( )`, `${ }`, `$(( ))`, backticks,
here-documents and comments. `core.spec.command` then refers to each value in a form that is right in its place.
Invariant: what this scanner does not read with certainty is refused for the values in it and after it.
Absent on purpose: variables of the shell. What an author does with `$name` is the author's own program.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from buoy.core.spec.heredocs import HereDocument, body_of, here_document
from buoy.core.spec.interpreters import programs_in
from buoy.core.spec.template import Param, Ref, parse
from buoy.core.spec.words import CommandReader, SimpleCommand

# `plain`: outside of quotes. `arithmetic`: inside of `$(( ))`, where only a whole number is safe.
Quoting: TypeAlias = Literal["plain", "double", "single", "heredoc", "comment", "arithmetic"]

# Stands for a value while a command is scanned; no spec has this character in a command.
VALUE = "\0"
_DEPTH_MAX = 50
_BLANKS = " \t\r"


class ValueSlot(NamedTuple):
    """A value in a command; `refused` says why it must not be there."""

    part: Param | Ref
    quoting: Quoting
    refused: str | None = None


@lru_cache(maxsize=4096)
def slots_of(text: str) -> tuple[str | ValueSlot, ...]:
    """The command in parts: the author's own text, and the values with their places."""
    parts = parse(text).parts
    if all(isinstance(part, str) for part in parts):
        return tuple(part for part in parts if isinstance(part, str))
    scanned = _Scanner("".join(part if isinstance(part, str) else VALUE for part in parts))
    found = iter(scanned.scan())
    return tuple(part if isinstance(part, str) else ValueSlot(part, *next(found)) for part in parts)


class _Unclear(Exception):
    """The rest of the command can not be read with certainty."""


class _Scanner:
    """Reads one command. `found` has the quoting and the refusal of each value, by its position in the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._limit = len(text)
        self._depth = 0
        self._bars: list[str] = []
        self._found: dict[int, tuple[Quoting, str | None]] = {}
        self._pipelines: list[list[SimpleCommand]] = []
        self._readers: list[CommandReader] = []

    def scan(self) -> list[tuple[Quoting, str | None]]:
        """Quoting and refusal of each value, in order."""
        try:
            self._commands(inner=False)
        except _Unclear as error:
            for reader in reversed(self._readers):
                reader.at(len(self._text))
                reader.end_command()
            for mark in re.finditer(VALUE, self._text):
                self._found.setdefault(mark.start(), ("plain", str(error)))
        values = sorted(self._found)
        for pipeline in self._pipelines:
            for place, why in programs_in(pipeline, values):
                self._found[place] = (self._found[place][0], self._found[place][1] or why)
        return [self._found[place] for place in values]

    # ---- characters

    def _peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._text[place] if place < self._limit else ""

    def _value(self, quoting: Quoting) -> None:
        self._found[self._at] = (quoting, self._bars[-1] if self._bars else None)
        self._at += 1

    def _escaped(self) -> str:
        """The character after a backslash."""
        char = self._peek(1)
        if char in ("", VALUE):
            raise _Unclear("after a backslash")
        self._at += 2
        return char

    # ---- commands

    def _commands(self, *, inner: bool) -> None:
        """Commands up to the end of the text; `inner`: up to the `)` of a command substitution."""
        self._enter()
        reader, open_parens, waiting = CommandReader(self._pipelines), 0, list[tuple[HereDocument, SimpleCommand]]()
        self._readers.append(reader)
        while char := self._peek():
            reader.at(self._at)
            if char == ")" and inner and not open_parens:
                break
            if char in "()":
                open_parens += 1 if char == "(" else -1
                if self._peek(1) == char == "(":
                    raise _Unclear("after '((', which shells read in different ways")
                reader.end_command()
                self._at += 1
            elif char == "\n":
                reader.end_command()
                self._at += 1
                for document, command in waiting:
                    self._here_document(document, command)
                waiting.clear()
            elif char == "<" and self._peek(1) == "<" and self._peek(2) != "<":
                reader.redirects()
                waiting.append((self._here_begins(), reader.command))
            else:
                self._word_character(char, reader)
            if inner and reader.in_case:
                raise _Unclear("after a 'case' inside of $( )")
        reader.at(self._at)
        reader.end_command()
        if (waiting and inner) or (inner and not self._peek()):
            raise _Unclear("in a command substitution that is not closed")
        self._readers.pop()
        self._depth -= 1

    def _word_character(self, char: str, reader: CommandReader) -> None:
        if char in _BLANKS:
            reader.end_word()
            self._at += 1
        elif char in ";&|":
            reader.end_command(pipes=char == "|" and self._peek(1) != "|")
            self._at += 2 if self._peek(1) == char else 1
        elif char in "<>":
            reader.redirects()
            self._at += 2 if self._peek(1) in tuple("<>&|") else 1
        elif char == "#" and not reader.in_word:
            self._comment()
        elif char == "\\" and self._peek(1) == "\n":
            self._at += 2  # the shell joins the lines before it reads words
        else:
            reader.begin_word()
            reader.add(self._piece(char))

    def _piece(self, char: str) -> str:
        """One part of a word outside of quotes; what of it is known without running anything."""
        if char == VALUE:
            self._value("plain")
        elif char == "\\":
            return self._escaped()
        elif char == "'":
            return self._single()
        elif char == '"':
            return self._double()
        elif char == "`":
            self._backticks()
        elif char == "$":
            return self._dollar()
        else:
            self._at += 1
            return char
        return ""

    def _comment(self) -> None:
        while self._peek() not in ("", "\n"):
            if self._peek() == VALUE:
                self._value("comment")
            else:
                self._at += 1

    # ---- quotes

    def _single(self, *, ansi: bool = False) -> str:
        return self._until("'", "single", "in single quotes that are not closed", ansi=ansi)

    def _double(self) -> str:
        return self._until('"', "double", "in double quotes that are not closed")

    def _until(self, end: str, quoting: Quoting, unclosed: str, *, ansi: bool = False) -> str:
        known = ""
        self._at += 1
        while (char := self._peek()) != end:
            if not char:
                raise _Unclear(unclosed)
            if char == VALUE:
                self._value(quoting)
            elif quoting == "single":
                if ansi and char == "\\":
                    raise _Unclear("after $'...' with a backslash, which shells read in different ways")
                known += char
                self._at += 1
            else:
                known += self._expanded(char)
        self._at += 1
        return known

    def _expanded(self, char: str) -> str:
        """One part of a text in which the shell expands, as inside of double quotes."""
        if char == "\\":
            found = self._escaped()
            return found if found in '$`"\\' else "" if found == "\n" else f"\\{found}"
        if char == "`":
            self._backticks()
            return ""
        if char == "$":
            return self._dollar(quoted=True)
        self._at += 1
        return char

    def _dollar(self, *, quoted: bool = False) -> str:
        after = self._peek(1)
        if after == VALUE:
            raise _Unclear("after a '$'")
        if after == "'" and not quoted:
            self._at += 1
            return self._single(ansi=True)
        if after == "{":
            self._at += 2
            self._braces(quoted=quoted)
        elif after == "(" and self._peek(2) == "(":
            self._at += 3
            self._arithmetic()
        elif after == "(":
            self._at += 2
            self._commands(inner=True)
            self._at += 1
        else:
            self._at += 1
        return ""

    # ---- expansions

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _Unclear(f"inside of more than {_DEPTH_MAX} expansions")

    def _backticks(self) -> None:
        self._at += 1
        while (char := self._peek()) != "`":
            if not char:
                raise _Unclear("in backticks that are not closed")
            if char == VALUE:
                self._bars.append("inside of backticks (write $( ) instead)")
                self._value("plain")
                self._bars.pop()
            else:
                self._at += 2 if char == "\\" and self._peek(1) != VALUE else 1
        self._at += 1

    def _braces(self, *, quoted: bool) -> None:
        self._enter()
        self._bars.append("inside of ${ }")
        while (char := self._peek()) != "}":
            if not char:
                raise _Unclear("in a ${ that is not closed")
            if char == "'" and quoted:
                raise _Unclear("after a ${ } in double quotes that has a single quote")
            self._piece(char)
        self._at += 1
        self._bars.pop()
        self._depth -= 1

    def _arithmetic(self) -> None:
        self._enter()
        begin, open_parens = self._at, 0
        while not (self._peek() == ")" and not open_parens):
            char = self._peek()
            if char in ("", "'", '"', "\\", "`", "#"):
                raise _Unclear("after a $(( that is not plain arithmetic")
            if char == VALUE:
                self._value("arithmetic")
            elif char == "$":
                self._dollar(quoted=True)
            else:
                open_parens += {"(": 1, ")": -1}.get(char, 0)
                self._at += 1
        if self._peek(1) != ")":
            for place in [each for each in self._found if each >= begin]:
                del self._found[place]
            raise _Unclear("after a '$((' that may be a subshell (write '$( (')")
        self._at += 2
        self._depth -= 1

    # ---- here-documents

    def _here_begins(self) -> HereDocument:
        found = here_document(self._text, self._at, self._limit)
        if found is None or VALUE in found.end:
            raise _Unclear("after a '<<' without a fixed end word")
        self._at = found.after
        return found

    def _here_document(self, document: HereDocument, command: SimpleCommand) -> None:
        body = body_of(document, self._text, self._at, self._limit)
        if body is None:
            raise _Unclear(f"in a here-document without its end {document.end!r}")
        command.bodies.append((self._at, body.end))
        outer, self._limit = self._limit, body.end
        if document.quoted:
            self._bars.append(f"in a here-document whose end word is quoted (write <<{document.end})")
        while char := self._peek():
            if char == VALUE:
                self._value("heredoc")
            elif document.quoted:
                self._at += 1
            else:
                self._expanded(char)
        if document.quoted:
            self._bars.pop()
        self._limit, self._at = outer, body.after
