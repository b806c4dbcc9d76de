"""Damaged stores and places that are none: what a look says of them, and that it leaves them as they are."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from buoy.cli.terminal.program import _MARK
from buoy.stores.objects.layout import MARKER
from tests.freeze import freeze

from .conftest import FLOWS, Buoy, Spawn, until

VERSION = """
import buoy

@buoy.step
def {0}() -> int:
    return 1

@buoy.workflow
def flow() -> bool:
    {0}()
    buoy.wait_signal("go")
    return True
"""


def change(buoy: Buoy, statement: str) -> None:
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        assert connection.execute(statement).rowcount >= 1


@pytest.mark.parametrize("words", [("ps",), ("why", "x"), ("sweeper", "--once", "--dry-run"), ("doctor",)])
@pytest.mark.parametrize("other", [False, True])
def test_a_look_at_a_folder_that_is_no_store_writes_nothing(buoy: Buoy, words: tuple[str, ...], other: bool) -> None:
    place = buoy.folder / "place"
    place.mkdir()
    if other:
        (place / "letter.txt").write_text("mine")
    before = os.listdir(place)
    buoy.store = f"file://{place}"
    assert f"no store at {place}" in buoy(*words, code=5).stderr
    assert os.listdir(place) == before


def test_a_folder_that_is_a_store_is_known_by_its_mark(buoy: Buoy) -> None:
    assert _MARK == MARKER
    buoy.store = f"file://{buoy.folder / 'place'}"
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    assert "s1" in buoy("ps").stdout


def test_a_gap_in_a_log_is_named(buoy: Buoy) -> None:
    given = json.dumps({"witness": str(buoy.witness), "count": 3, "work_s": 0.0})
    buoy("run", f"{FLOWS}:parts", "--input", given, "--id", "p1")
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        commits = connection.execute("SELECT first_seq, last_seq FROM log ORDER BY first_seq").fetchall()
    (first, last), head = commits[1], commits[-1][1]
    assert len(commits) > 3 and buoy.json("events", "p1")["missing"] == []
    change(buoy, f"DELETE FROM log WHERE first_seq = {first}")
    told = buoy("events", "p1", code=1)
    what = f"event {first} is" if first == last else f"events {first} to {last} are"
    assert "workflow_created" in told.stdout and f"warning: {what} missing; see buoy why p1" in told.stderr
    assert buoy.json("events", "p1", code=1)["missing"] == [[first, last]]
    assert buoy.json("events", "p1", "--after", str(last))["missing"] == []
    assert buoy.json("events", "p1", "--limit", "1")["missing"] == []
    change(buoy, f"DELETE FROM log WHERE last_seq = {head}")
    assert f"{head} is missing" in buoy("events", "p1", code=1).stderr.replace("are missing", "is missing")
    change(buoy, "DELETE FROM log")
    assert f"warning: events 1 to {head} are missing" in buoy("events", "p1", code=1).stderr
    assert "its log is gone" in buoy("events", "p1", "--follow", code=1).stderr


def test_a_doctor_offers_to_mend_only_what_can_be_mended(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "d7")
    change(buoy, "UPDATE log SET body = '{broken'")
    told = buoy("doctor", code=1).stdout
    assert "R1 d7: its log" in told and told.count("cannot be read: ") == 1
    assert "--fix" not in told and "keep a copy of the store" in told


def test_a_dry_run_of_a_sweeper_ends(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    assert "would have swept" in buoy("sweeper", "--dry-run").stdout


def test_a_sweep_tells_of_what_a_silent_process_holds(buoy: Buoy, spawn: Spawn) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    owner = spawn("run", f"{FLOWS}:signalled", "--id", "w1")
    until(lambda: "w1" in buoy("ps").stdout and buoy.json("show", "w1").get("runner"), owner)
    assert buoy.json("sweeper", "--once")["troubles"] == []
    freeze(owner.popen.pid, buoy.store)
    change(buoy, "UPDATE runners SET beat_at = beat_at - 200")
    swept = buoy.json("sweeper", "--once", code=1)
    assert "w1: H3: runner" in swept["troubles"][0] and "silent for 3 min" in swept["troubles"][0]
    assert buoy.json("show", "w1")["runner"] is not None, "a living process keeps its run"
    owner.send(signal.SIGCONT)


def test_a_run_paused_for_its_version_is_not_sent_in_a_circle(buoy: Buoy) -> None:
    for name, step in (("version_1", "a"), ("version_2", "b")):
        (buoy.folder / f"{name}.py").write_text(VERSION.format(step))
    buoy("start", "version_1.py", "--id", "v1")
    buoy("worker", "version_1.py", "--until-idle")
    buoy("signal", "v1", "go")
    buoy("worker", "version_2.py", "--until-idle")
    told = buoy("recover", "v1").output
    assert "buoy why v1" in told and "buoy migrate v1 --rename OLD=NEW" in told
    assert "buoy resume" not in told


def test_a_spoiled_document_of_a_folder_is_named_and_mended(buoy: Buoy, tmp_path: Path) -> None:
    place = tmp_path / "place"
    buoy.store = f"file://{place}"
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    # A run that has just begun has no document of its own yet: its first commit has it.
    state = place / "workflow/s1/state.json"
    state.write_text("{garbage")
    told = buoy("doctor", code=1).stdout
    assert "index s1: its document, workflow/s1/state.json, cannot be read" in told and "buoy doctor --fix" in told
    assert state.read_text() == "{garbage", "looking changes nothing"
    assert "repaired index s1" in buoy("doctor", "--fix").stdout
    assert buoy.json("doctor")["healthy"] and state.read_text() != "{garbage"
