"""Scripts: what people and programs outside say to a run in a test. Answers and signals, in a small file or as a list.

    - on: Ship it?           # a question, by its title or its leaf (ask#1)
      answer: true
      after: 2h              # so long after it was asked; at once if left out
    - on: signal packed      # a wait for that signal
      payload: {boxes: 2}
    - on: start              # from the beginning of the run
      signal: hurry
      after: 10m

Invariants: the n-th question of one title gets the n-th of its entries, the last one serves all further ones; a signal
is sent once per entry. What an entry does depends on the log alone, so a crash changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import yaml

from buoy.core.durations import seconds
from buoy.core.ids import check_name
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.leaf import Leaf
from buoy.errors import BadInput

Entries: TypeAlias = "Sequence[dict[str, Any]] | Script | None"

_KNOWN = frozenset({"on", "answer", "payload", "signal", "after"})
_EXAMPLE = "write {on: 'Ship it?', answer: true} or {on: signal packed, payload: {...}, after: 2h}"


class Saying(msgspec.Struct, frozen=True):
    """Something that is due to be said to a run. `key` names it, so that saying it again has no further effect."""

    due_at: float
    key: str
    value: Any
    question_id: str | None = None
    signal: str | None = None
    # The entry that says so, for people.
    where: str = ""


class ScriptEntry(msgspec.Struct, frozen=True):
    """One line of a script, checked."""

    on: str
    value: Any
    signal: str | None
    after_s: float
    where: str


class Script:
    """What is said, and on what."""

    def __init__(self, entries: Sequence[dict[str, Any]] = (), source: str = "the script") -> None:
        self._source = source
        self._entries = [self._read(number, entry) for number, entry in enumerate(entries, 1)]

    @classmethod
    def of(cls, entries: Sequence[ScriptEntry]) -> Script:
        """The script of another process, which handed `entries` over."""
        script = cls()
        script._entries = list(entries)
        return script

    @property
    def entries(self) -> list[ScriptEntry]:
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _read(self, number: int, entry: object) -> ScriptEntry:
        where = f"{self._source}, entry {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("on"), str):
            raise BadInput(f"{where}: an entry says on what it is said; {_EXAMPLE}")
        unknown = sorted(map(str, entry.keys() - _KNOWN))
        if unknown:
            raise BadInput(f"{where}: {', '.join(unknown)} is unknown; {_EXAMPLE}")
        after_s = seconds(entry.get("after", 0), f"{where}: after")
        on = entry["on"].strip()
        signal = entry.get("signal")
        if signal is None and on.startswith("signal "):
            signal = on.removeprefix("signal ").strip()
        if (signal is None) != ("answer" in entry):
            raise BadInput(f"{where}: it needs an answer, or a signal with a payload; {_EXAMPLE}")
        if signal is None:
            return ScriptEntry(on, entry["answer"], None, after_s, where)
        return ScriptEntry(on, entry.get("payload"), check_name(str(signal), f"{where}: signal"), after_s, where)

    def sayings(self, document: Document, asked: Sequence[tuple[str, str]]) -> list[Saying]:
        """What the open leaves of this run call for. `asked`: every question and signal wait of its log, in order, as
        (leaf, title or `signal NAME`)."""
        found = [
            Saying(document.created_at + entry.after_s, f"start-{place}", entry.value, signal=entry.signal)
            for place, entry in enumerate(self._entries)
            if entry.on == "start"
        ]
        for leaf in document.open:
            saying = self._for(leaf, asked)
            if saying is not None:
                found.append(saying)
        return found

    def unused(self, asked: Sequence[tuple[str, str]]) -> list[str]:
        """The entries that nothing in these runs called for, each as a sentence. `asked`: as above."""
        called = {"start", *(name for each in asked for name in each)}
        return [
            f"entry {number} of {self._source} (on: {entry.on}) matched nothing"
            for number, entry in enumerate(self._entries, 1)
            if entry.on not in called
        ]

    def _for(self, leaf: OpenLeaf, asked: Sequence[tuple[str, str]]) -> Saying | None:
        name = title_of(leaf)
        if name is None:
            return None
        exact = [entry for entry in self._entries if entry.on == leaf.leaf]
        fitting = exact or [entry for entry in self._entries if entry.on == name]
        if not fitting:
            return None
        earlier = [each for each, title in asked if title == name]
        place = 0 if exact or leaf.leaf not in earlier else earlier.index(leaf.leaf)
        if leaf.kind == "signal" and place >= len(fitting):
            return None  # unlike a person, a signal does not repeat itself
        entry = fitting[min(place, len(fitting) - 1)]
        due_at = leaf.since + entry.after_s
        if entry.signal is not None:
            return Saying(due_at, f"on-{leaf.leaf}", entry.value, signal=entry.signal)
        where = f"{entry.where}, the answer to {name!r}"
        return Saying(due_at, str(leaf.question_id), entry.value, question_id=leaf.question_id, where=where)


def title_of(leaf: OpenLeaf | Leaf) -> str | None:
    """How a script calls what this leaf waits for."""
    if leaf.kind == "ask":
        return leaf.question.title if leaf.question is not None else leaf.name
    return f"signal {leaf.name}" if leaf.kind == "signal" else None


def as_script(entries: Entries) -> Script:
    return entries if isinstance(entries, Script) else Script(entries or ())


def read_script(path: str | Path) -> Script:
    """A script file, YAML or JSON."""
    try:
        found = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the script {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"the script {path} is no YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return Script((), str(path))
    if not isinstance(found, list):
        raise BadInput(f"the script {path} must be a list; {_EXAMPLE}")
    # YAML takes a bare `on` for a yes.
    entries = [{("on" if key is True else key): value for key, value in entry.items()} if isinstance(entry, dict)
               else entry for entry in found]  # fmt: skip
    return Script(entries, str(path))
