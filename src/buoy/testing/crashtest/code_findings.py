"""Findings about workflow code: from what the code watch saw to words. Pure: no store, no clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from buoy.testing.crashtest.notes import Note
from buoy.testing.crashtest.report import Kind


class CodeFinding(msgspec.Struct, frozen=True):
    """One thing that the code should not do."""

    kind: Kind
    what: str
    advice: str


def code_findings(notes: Sequence[Note]) -> Iterator[CodeFinding]:
    """What one scenario shows. The times of calls that block are added up."""
    blocked: defaultdict[tuple[str, str], float] = defaultdict(float)
    for note in notes:
        if note.what == "impure":
            yield _impure(note)
        elif note.what == "forgotten":
            yield _forgotten(note)
        elif note.what == "blocked":
            blocked[note.text, note.step] += note.took_s
    for (text, holds), took_s in blocked.items():
        yield _blocked(text, holds, took_s)


def _impure(note: Note) -> CodeFinding:
    kind, _, rest = note.text.partition(" ")
    name, _, place = rest.partition(" at ")
    what = f"{place} calls {name}: it gives something else when the code is replayed after a crash."
    if kind == "clock":
        return CodeFinding("clock", what, "use buoy.now() instead, or ask the clock in a step")
    return CodeFinding("random", what, "use buoy.random() or buoy.uuid() instead, or draw it in a step")


def _forgotten(note: Note) -> CodeFinding:
    return CodeFinding(
        "not_awaited",
        f"{note.text} calls {note.leaf}, and nothing ever waits for it: it does not happen.",
        "write `await` before the call, or hand it to asyncio.gather or asyncio.create_task and await that; in a plain "
        "`def` ask for its .result() or hand it to buoy.gather",
    )


def _blocked(text: str, holds: str, took_s: float) -> CodeFinding:
    name, _, place = text.partition(" at ")
    others = ", and every other run there has to wait" if holds == "process" else ""
    return CodeFinding(
        "blocking",
        f"{place} calls {name}, which held its {holds} for {took_s:.2g} s{others}. It does so again at every replay.",
        "use asyncio.sleep or buoy.sleep, which are durable timers; what has to block belongs in a step",
    )
