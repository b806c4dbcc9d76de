"""Prose rules: plain English in docstrings, comments and texts, counted per folder.

Invariant: the budget of a folder only falls. `python -m tests.prose --write` lowers it to what is there now.
Absent on purpose: judging style. Only words and lengths that a program can count are counted.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUDGET = ROOT / "tests" / "prose_budget.json"
WORDS_MAX = 25
# Words for persons where a program is meant, and turns that read like a translation.
BANNED = (
    "nobody",
    "somebody",
    "someone",
    "whoever",
    "whichever",
    "everybody",
    "anew",
    "meanwhile",
    "for want of",
    "go on",
    "goes on",
    "went on",
    "gone on",
    "is told",
    "are told",
    "was told",
    "gets on",
    "getting on",
)
_BANNED = re.compile(r"\b(?:" + "|".join(BANNED) + r")\b", re.IGNORECASE)
_CODE = re.compile(r"`[^`]*`|\"[^\"]*\"|https?://\S+|\{[^}]*\}")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+")
_ROW = re.compile(r"\S {2,}\S")
_FOLDERS_MAX_DEPTH = 3
# They quote what the rule forbids: its own words and examples, and sentences that an older release stored.
_QUOTES_FAULTS = {"prose.py", "test_prose.py", "test_upcasts.py"}
_CHECKED = ("src", "simulator", "tests", "benchmarks", "examples")


class Fault(NamedTuple):
    """One place whose prose breaks a rule."""

    place: str
    line: int
    text: str


def faults_in(place: str, source: str) -> Iterator[Fault]:
    """Banned words and long sentences in the docstrings, comments and texts of a module."""
    for line, text, is_prose in _texts(source):
        plain = _CODE.sub("x", text)
        for found in _BANNED.finditer(plain):
            yield Fault(place, line, f"{found[0]!r} in: {_short(text)}")
        if is_prose:
            for sentence in _sentences(plain):
                words = len(sentence.split())
                if words > WORDS_MAX:
                    yield Fault(place, line, f"{words} words: {_short(sentence)}")


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a paragraph. A row of a table or of a drawn tree stands for itself."""
    prose: list[str] = []
    for line in text.splitlines():
        if _ROW.search(line):
            yield line
        else:
            prose.append(line)
    yield from _SENTENCE.split(" ".join(" ".join(prose).split()))


def faults_in_page(place: str, source: str) -> Iterator[Fault]:
    """Banned words in a page of documentation, code blocks and tables' code aside."""
    inside = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        if not inside:
            for found in _BANNED.finditer(_CODE.sub("x", line)):
                yield Fault(place, number, f"{found[0]!r} in: {_short(line)}")


def all_faults() -> Iterator[Fault]:
    """The faults of the whole repository."""
    for top in _CHECKED:
        for path in sorted((ROOT / top).rglob("*.py")):
            if any(part.startswith(".venv") for part in path.relative_to(ROOT).parts):
                continue
            if path.name not in _QUOTES_FAULTS:
                yield from faults_in(str(path.relative_to(ROOT)), path.read_text())
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        yield from faults_in_page(str(path.relative_to(ROOT)), path.read_text())


@cache
def counts() -> dict[str, int]:
    """How many faults each folder has. Computed once per process: it reads every file."""
    return dict(sorted(Counter(folder_of(fault.place) for fault in all_faults()).items()))


def folder_of(place: str) -> str:
    """The folder that a file's faults count for."""
    parts = Path(place).parent.parts
    return "/".join(parts[: _FOLDERS_MAX_DEPTH + 1]) or "."


def _texts(source: str) -> Iterator[tuple[int, str, bool]]:
    tree = ast.parse(source)
    docs = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docs.add(first.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for paragraph in node.value.split("\n\n"):
                yield node.lineno, paragraph, node in docs
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# "), False


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 80 else words[:77] + "..."


if __name__ == "__main__":
    if "--write" in sys.argv:
        BUDGET.write_text(json.dumps(counts(), indent=1) + "\n")
    else:
        wanted = sys.argv[1:]
        for each in all_faults():
            if not wanted or any(each.place.startswith(prefix) for prefix in wanted):
                print(f"{each.place}:{each.line}: {each.text}")
