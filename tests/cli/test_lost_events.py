"""Documents that are ahead of their logs, or behind them, and other odd runs, as the command line tells them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from .conftest import FLOWS, Buoy

CASES = Path(__file__).parents[1] / "cases"
AHEAD = "r2_ahead_and_awaiting_input"
SAID = "its document is at event 12, its log ends at 5: events 6 to 12 may have been lost"


def brought(buoy: Buoy, case: str, kind: str = "sqlite") -> tuple[str, list[str]]:
    """The run's id, and the words that name its store."""
    store = ["--store", f"sqlite:///{buoy.folder / 'odd.db'}" if kind == "sqlite" else f"file://{buoy.folder / 'odd'}"]
    file = CASES / case / "bundle.json"
    buoy("import", "--as-found", str(file), *store)
    return json.loads(file.read_text())["run_id"], store


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_lost_events_are_told_before_they_are_written_down(buoy: Buoy, kind: str) -> None:
    run, store = brought(buoy, AHEAD, kind)
    assert SAID in buoy("why", run, *store).output
    assert SAID in buoy("doctor", *store, code=1).output
    dry = buoy("recover", run, "--dry-run", *store).output
    assert SAID in dry
    assert "that events may have been lost would be written into its log" in dry
    assert "new branch" not in dry
    done = buoy("recover", run, *store).output
    assert SAID in done and "its document was rebuilt from its log" in done
    events = buoy("events", run, *store).output
    assert f"R2: {SAID}" in events and "R2: R2:" not in events
    assert SAID in buoy("why", run, *store).output, "it stays in the story of the run"
    assert "R2" not in buoy("doctor", *store).output


def test_the_json_of_a_loss_has_both_numbers(buoy: Buoy) -> None:
    run, store = brought(buoy, AHEAD)
    found: dict[str, Any] = buoy.json("recover", run, "--dry-run", *store)
    evidence = next(each for each in found["findings"] if each["code"] == "R2")["evidence"]
    assert (evidence["document_head"], evidence["log_end"]) == (12, 5)
    assert found["new_branch_id"] is None


def test_a_document_that_lags_is_not_believed_and_is_brought_up_to_date(buoy: Buoy) -> None:
    run, store = brought(buoy, "lag_question_not_yet_shown")
    assert "status    awaiting answer" in buoy("show", run, *store).output
    why = buoy("why", run, *store).output
    assert "waits for an answer" in why
    assert "lists still show it as running, as it was at event 3" in why
    assert "running" in buoy("ps", *store).output
    buoy("sweeper", "--once", *store)
    assert "awaiting answer" in buoy("ps", *store).output
    assert "lists still show" not in buoy("why", run, *store).output


def test_a_dry_run_names_what_would_be_left(buoy: Buoy) -> None:
    run, store = brought(buoy, "several_poison_and_a1")
    dry = buoy("recover", run, "--dry-run", *store).output
    assert "A1: status awaiting_input" in dry and "left:       P1: step a#1" in dry


def test_a_run_whose_policy_is_none_is_left_alone_and_told_so(buoy: Buoy) -> None:
    run, store = brought(buoy, "h1_policy_that_is_none")
    assert "is unknown (known: resume, restart, fail, hold), so sweepers skip" in buoy("why", run, *store).output


def test_a_document_without_a_log_is_said_to_have_none(buoy: Buoy) -> None:
    run, store = brought(buoy, "q6_foreign_document")
    assert "there is no log; its summary is of" in buoy("why", run, *store).output


def test_a_run_in_quarantine_is_released_and_not_resumed(buoy: Buoy) -> None:
    run, store = brought(buoy, "p1_poison")
    buoy("recover", run, *store)
    refused = buoy("resume", run, *store, code=2).stderr
    assert "is in quarantine" in refused and f"buoy release {run}" in refused
    assert "was held: poison" in buoy("release", run, *store).output


@pytest.mark.parametrize("damage", ["DELETE FROM log WHERE first_seq = 1", "UPDATE log SET body = 'x'"])
def test_a_worker_tells_of_a_log_that_cannot_be_read_and_does_not_turn_around_it(buoy: Buoy, damage: str) -> None:
    buoy("start", f"{FLOWS}:signalled", "--id", "r1")
    buoy.drive()
    with closing(sqlite3.connect(buoy.folder / "buoy.db")) as connection, connection:
        connection.execute(damage)
    buoy("signal", "r1", "packed")
    said = buoy("worker", str(FLOWS), "--until-idle").stdout
    assert said.count("trouble: run r1:") == 1
    assert "nothing is left to do now" in said
