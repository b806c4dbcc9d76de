"""Here-documents of the shell: where one begins, and where its body ends.

Invariant: a body ends at the first line that is its end word alone, as the shell has it; without one there is no body.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_END_WORD = re.compile(r"(?:[^\s;&|<>()'\"\\]|'[^'\n]*'|\"[^\"\n]*\"|\\[^\n])+")


class HereDocument(NamedTuple):
    """`<<END`, `<<-END` or `<<'END'`; `after`: where the text continues."""

    end: str
    quoted: bool
    strips_tabs: bool
    after: int


class Body(NamedTuple):
    """Where a body ends, and where the line after its end word begins."""

    end: int
    after: int


def here_document(text: str, at: int, limit: int) -> HereDocument | None:
    """The here-document whose `<<` is there. None: it has no end word."""
    at += 2
    strips = text.startswith("-", at, limit)
    at += strips
    while at < limit and text[at] in " \t":
        at += 1
    found = _END_WORD.match(text, at, limit)
    if found is None:
        return None
    end = re.sub(r"\\(.)|['\"]", r"\1", found[0])
    return HereDocument(end, end != found[0], strips, found.end())


def body_of(document: HereDocument, text: str, begin: int, limit: int) -> Body | None:
    """The body that begins there. None: its end word does not come."""
    at = begin
    while at < limit:
        line_end = text.find("\n", at, limit)
        line_end = limit if line_end < 0 else line_end
        line = text[at:line_end]
        if (line.lstrip("\t") if document.strips_tabs else line) == document.end:
            return Body(at, min(line_end + 1, limit))
        at = line_end + 1
    return None
