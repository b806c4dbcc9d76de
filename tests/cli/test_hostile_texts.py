"""Texts from elsewhere (errors, reasons, questions) that would make a terminal obey them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from buoy.cli.terminal.visible import visible

from .conftest import Buoy
from .terminal import Terminal

# Colours, a title, a cleared screen, the one-character CSI, another order of letters, deletions, an end of text.
HOSTILE = "A\x1b[31mred\x1b]0;owned\x07\x1b[2J\x9b31m \u202edlo\u202c\rover\x08\x7f \x00 \u2028end"
SHOWN = "A␛[31mred␛]0;owned"
FLOWS = f"""
import buoy

@buoy.step
async def breaks() -> None:
    raise ValueError({HOSTILE!r})

@buoy.workflow
async def failing() -> None:
    await breaks()

@buoy.workflow
async def cancelling() -> None:
    raise buoy.Cancelled({HOSTILE!r})

@buoy.workflow
async def asking() -> None:
    await buoy.ask({HOSTILE!r}, kind="confirm", detail={HOSTILE!r})
"""
LOOKS = [
    *([verb, run] for verb in ("why", "show", "events", "graph") for run in ("failing", "cancelling", "asking")),
    ["recover", "failing", "--dry-run"],
    ["retry", "failing", "--dry-run"],
    ["ps", "--all"],
    ["status"],
    ["why", "--all"],
    ["doctor"],
]


@pytest.fixture
def runs(buoy: Buoy) -> Path:
    """The file of three runs: one that failed, one that was cancelled, and one that asks and is paused."""
    file = buoy.folder / "hostile.py"
    file.write_text(FLOWS)
    for name in ("failing", "cancelling", "asking"):
        buoy("start", f"{file}:{name}", "--id", name)
    buoy("worker", str(file), "--until-idle")
    buoy("pause", "asking", "--reason", HOSTILE.replace("\x00", ""))
    return file


def obeyed(text: str) -> set[str]:
    """The characters that a terminal would obey."""
    kinds = {"Cc", "Zl", "Zp"}
    return {
        each for each in text if each not in "\n\t" and (unicodedata.category(each) in kinds or each in "\u202e\u202c")
    }


@pytest.mark.usefixtures("runs")
def test_no_command_prints_what_a_terminal_would_obey(buoy: Buoy) -> None:
    for words in LOOKS:
        found = buoy(*words)
        assert not obeyed(found.output), (words, found.output)
    for run, code in (("failing", 1), ("cancelling", 3)):
        found = buoy("result", run, code=code)
        assert SHOWN in found.output and not obeyed(found.output)
    assert SHOWN in buoy("why", "failing").output


@pytest.mark.usefixtures("runs")
def test_json_has_such_texts_as_they_are(buoy: Buoy) -> None:
    assert HOSTILE in buoy.json("show", "cancelling")["document"]["error"]["message"]


def test_a_worker_prints_nothing_that_a_terminal_would_obey(buoy: Buoy, runs: Path) -> None:
    buoy("start", f"{runs}:failing", "--id", "again")
    found = buoy("worker", str(runs), "--until-idle")
    assert SHOWN in found.output and not obeyed(found.output)


@pytest.mark.usefixtures("runs")
def test_colours_of_the_program_itself_stay(buoy: Buoy) -> None:
    terminal = Terminal("why", "failing", "--store", buoy.store)
    assert terminal.close() == 0
    assert "\x1b[1m" in terminal.all
    assert SHOWN in terminal.all and "\x1b]0;" not in terminal.all and "\x1b[2J" not in terminal.all


def test_each_character_becomes_one_and_ordinary_text_stays() -> None:
    assert len(visible(HOSTILE)) == len(HOSTILE)
    ordinary = "one\n\ttwo: é 日本 👩\u200d💻 עברית"
    assert visible(ordinary) == ordinary
