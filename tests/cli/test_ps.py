"""`buoy ps` on real terminals of several widths."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from buoy.cli.main import main

from .conftest import ASKING, FLOWS, Buoy
from .terminal import Terminal

LONG = "Should the order that was placed in the night before the price list changed be shipped at the old price? " * 2


@pytest.fixture
def crowded(buoy: Buoy) -> dict[str, str]:
    """Statuses by run: ids of the usual length, one question with a long title."""
    made = {
        buoy("start", f"{ASKING}:wordy", "--arg", f"title={LONG}").stdout.strip(): "awaiting answer",
        buoy("start", f"{ASKING}:chosen_then_signalled").stdout.strip(): "awaiting answer",
        buoy("start", f"{FLOWS}:signalled").stdout.strip(): "waiting signal",
        buoy("start", f"{FLOWS}:hopeful").stdout.strip(): "waiting",
    }
    buoy.drive()
    return made


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_ids_and_statuses_are_whole_on_any_terminal(buoy: Buoy, crowded: dict[str, str], columns: int) -> None:
    terminal = Terminal("ps", "--store", buoy.store, columns=columns)
    assert terminal.close() == 0
    head, *rows = [line for line in terminal.screen() if line]
    assert {row.split()[0] for row in rows} == set(crowded)
    assert all(len(line) <= columns for line in (head, *rows))
    assert "HOST" not in head
    for row in rows:
        run_id = row.split()[0]
        assert row[head.index("STATUS") :].startswith(crowded[run_id] + " "), row
    at = head.index(" AT")
    (asked,) = [row for row in rows if row.startswith("wordy-")]
    assert asked[at + 1 :].startswith("? Sh"), "the question, not the timer that bounds it"


def test_a_wide_list_has_every_column_whole(buoy: Buoy, crowded: dict[str, str]) -> None:
    terminal = Terminal("ps", "--wide", "--store", buoy.store, columns=80)
    assert terminal.close() == 0
    shown = terminal.screen()
    assert "HOST" in shown[0]
    assert LONG.strip() in "\n".join(shown)


def test_an_age_is_a_span(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    head, row = buoy("ps").stdout.splitlines()
    assert row[head.index("AGE") :].split("  ")[0] in {f"{number} s" for number in range(60)} | {"1 min"}


@pytest.mark.parametrize("word", ["awaiting answer", "awaiting_answer", "awaiting_input"])
def test_a_status_is_chosen_by_its_name_or_by_the_words_of_the_list(
    buoy: Buoy, crowded: dict[str, str], word: str
) -> None:
    asked = {run_id for run_id, status in crowded.items() if status == "awaiting answer"}
    assert {each["document"]["run_id"] for each in buoy.json("ps", "--status", word)["runs"]} == asked


def test_a_shell_completes_both_words_for_a_status(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_BUOY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "buoy ps --status awa")
    monkeypatch.setenv("COMP_CWORD", "3")
    told = CliRunner().invoke(main, prog_name="buoy", complete_var="_BUOY_COMPLETE").stdout
    assert told.split() == ["plain,awaiting_answer", "plain,awaiting_input"]
