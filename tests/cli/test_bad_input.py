"""What a user can do wrong: each told in one line, with the right exit code and never a traceback."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from buoy.cli.main import main

from .conftest import FLOWS, Buoy

WRONG = [
    (["run", f"{FLOWS}:nothing"], "has no workflow 'nothing'; it has divide, hanging"),
    (["run", f"{FLOWS}:reserve"], "reserve is a step, and only workflows can be started; name a workflow of "),
    (["run", str(FLOWS)], "has several workflows: "),
    (["run", "missing.py:x"], "no such file: "),
    (["run", "missing.module:x"], "there is no file or module 'missing.module'"),
    (["run", f"{FLOWS}:divide"], "invalid arguments for workflow divide: missing `number`; it takes "),
    (["run", f"{FLOWS}:divide", "--input", "{"], "--input is not JSON"),
    (["run", f"{FLOWS}:divide", "--input", "[1]"], "must be a JSON object of arguments by name"),
    (["run", f"{FLOWS}:divide", "--input", "@missing.json"], "cannot be read"),
    (["run", f"{FLOWS}:divide", "--input", '{"number": "x"}'], "Expected `int`, got `str`"),
    (["run", f"{FLOWS}:divide", "--arg", "number"], "write NAME=VALUE"),
    (["run", f"{FLOWS}:divide", "--arg", "number=x"], "Expected `int`, got `str`"),
    (["start", f"{FLOWS}:divide", "--arg", "number=1", "--arg", "other=1"], "unknown `other`"),
    (["run", f"{FLOWS}:divide", "--arg", "number=1", "--id", "a/b"], "run id 'a/b' is not allowed"),
    (["worker", "--no-specs"], "name at least one workflow file"),
    (["worker", str(FLOWS), "--queue", "a b"], "queue name 'a b' is not allowed"),
    (["worker", str(FLOWS), "--grace", "soon"], "is not a duration"),
    (["worker", str(FLOWS), "--concurrency", "0"], "--concurrency"),
    (["result", "x", "--timeout", "soon"], "is not a duration"),
    (["answer", "x", "yes", "--form", "{}"], "the answer is given twice"),
    (["ps", "--status", "lost"], "'lost' is not one of"),
    (["nonsense"], "No such command 'nonsense'"),
]


def test_an_empty_store_option_is_not_the_default_store(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUOY_STORE", buoy.store)
    buoy("start", f"{FLOWS}:sleeper", "--id", "there")
    for words in (["ps"], ["worker", "--until-idle"]):
        found = CliRunner().invoke(main, [*words, "--store", ""])
        assert (found.exit_code, "store '' is neither a URL nor a path" in found.stderr) == (2, True), found.stderr


@pytest.mark.parametrize(
    "words", [["ps"], ["why", "x"], ["status"], ["doctor"], ["sweeper", "--once"], ["signal", "x", "y"]]
)
def test_a_look_makes_no_store_of_an_empty_file(buoy: Buoy, words: list[str]) -> None:
    place = buoy.folder / "buoy.db"
    place.touch()
    assert "buoy.db: the file is empty; if runs were in it, restore it" in buoy(*words, code=5).stderr
    assert [place.stat().st_size, list(buoy.folder.glob("buoy.db-*"))] == [0, []]


@pytest.mark.parametrize("words", [["ps"], ["worker", "--until-idle"]])
def test_a_folder_in_the_place_of_a_database_is_named(buoy: Buoy, words: list[str]) -> None:
    place = buoy.folder / "buoy.db"
    place.mkdir()
    assert f"{place} is a folder, and a store of SQLite is a file; name a file" in buoy(*words, code=5).stderr


@pytest.mark.parametrize(("words", "reason"), WRONG, ids=[" ".join(words)[-40:] for words, _ in WRONG])
def test_bad_input_is_told_in_one_line(buoy: Buoy, words: list[str], reason: str) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "there")
    told = buoy(*words, code=2).stderr
    assert reason in told
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    found = buoy.json(*words, code=2)
    assert reason in found["error"]["message"]


@pytest.mark.parametrize("verb", ["why", "show", "events", "result"])
def test_an_unknown_run_is_told(buoy: Buoy, verb: str) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "there")
    assert "no run 'lost'" in buoy(verb, "lost", code=2).stderr
    assert buoy.json(verb, "lost", code=2)["error"]["type"] == "UnknownRun"


def test_a_command_that_only_looks_makes_no_store(buoy: Buoy) -> None:
    for words in (["ps"], ["status"], ["why", "x"], ["cancel", "x"]):
        assert "no store at" in buoy(*words, code=5).stderr
    assert not (buoy.folder / "buoy.db").exists()


def test_a_file_that_is_no_database_is_refused(buoy: Buoy) -> None:
    (buoy.folder / "buoy.db").write_text("something else entirely, and long enough to be looked at\n" * 50)
    assert "is not an SQLite database" in buoy("ps", code=5).stderr
    assert buoy.json("run", f"{FLOWS}:divide", "--arg", "number=1", code=5)["error"]["type"] == "StoreUnusable"


def test_a_store_of_a_newer_buoy_is_refused(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper")
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        connection.execute("PRAGMA user_version = 9999")
    assert "upgrade this one" in buoy("ps", code=5).stderr


def test_a_store_that_cannot_be_written_is_refused(buoy: Buoy) -> None:
    words = ["run", f"{FLOWS}:divide", "--arg", "number=1", "--store", "sqlite:////proc/buoy.db"]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 5
    assert "correct the path or its permissions" in found.stderr


def test_an_unknown_kind_of_store_is_refused(buoy: Buoy) -> None:
    found = CliRunner().invoke(main, ["ps", "--store", "ftp://x/y"])
    assert found.exit_code == 2
    assert "there is no store for 'ftp'" in found.stderr


BROKEN = [
    ("import buoy\nimport nothing_like_this\n", ":2: ModuleNotFoundError: No module named 'nothing_like_this'"),
    ("import buoy\n\ndef f(:\n", ":3: SyntaxError: "),
    ("x = 1\n", "has no workflow; mark a function with @buoy.workflow"),
    ("raise SystemExit(3)\n", ":1: SystemExit: 3"),
    ("from . import other\n", "name it as a module of its package instead"),
    ("import buoy\n@buoy.workflow(recovery='never')\ndef f(): ...\n", ":2: BadInput: recovery='never' is unknown"),
]


@pytest.mark.parametrize(("text", "reason"), BROKEN, ids=[reason[:30] for _, reason in BROKEN])
@pytest.mark.parametrize("verb", ["run", "worker"])
def test_a_broken_file_is_told_with_the_place(buoy: Buoy, verb: str, text: str, reason: str) -> None:
    file = buoy.folder / "broken.py"
    file.write_text(text)
    told = buoy(verb, str(file), code=2).stderr
    assert reason in told
    assert told.count("\n") == 1


def test_an_unexpected_error_does_show_its_traceback(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a bug of Buoy")

    monkeypatch.setattr("buoy.cli.status._report", broken)
    found = CliRunner().invoke(main, ["status", "--store", buoy.store])
    assert isinstance(found.exception, ZeroDivisionError)


def test_json_errors_are_one_document(buoy: Buoy, tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["ps", "--json", "--store", f"sqlite:///{tmp_path / 'no.db'}"])
    assert json.loads(found.stdout)["error"]["type"] == "StoreUnusable"
    assert found.stderr == ""
