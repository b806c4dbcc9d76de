"""One record that cannot be read: every command shows the others, names it, and there is a way to get rid of it."""

from __future__ import annotations

import json
import sqlite3
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FLOWS, PATIENCE_S, Buoy, Spawn, until

GARBAGE = b"\x00\xffnot of ours"
Plant = Callable[[Buoy], None]


def sql(statement: str, *values: object) -> Plant:
    def plant(buoy: Buoy) -> None:
        with sqlite3.connect(buoy.folder / "buoy.db") as connection:
            assert connection.execute(statement, values).rowcount >= 1

    return plant


def place(buoy: Buoy) -> Path:
    return buoy.folder / "place"


def stray(name: str, data: bytes = GARBAGE) -> Plant:
    def plant(buoy: Buoy) -> None:
        path = place(buoy) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return plant


def folder(name: str) -> Plant:
    def plant(buoy: Buoy) -> None:
        path = place(buoy) / name
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)

    return plant


def together(*plants: Plant) -> Plant:
    def plant(buoy: Buoy) -> None:
        for each in plants:
            each(buoy)

    return plant


def spoil_runner(column: str) -> Plant:
    insert = """INSERT INTO runners (runner_id, info, registered_at, beat_at, beat)
        VALUES ('runner-x', ?, 1.0, 1.0, ?)"""
    sound = {"info": b'{"id":"runner-x"}', "beat": b'{"number":1}'}
    return sql(insert, *(GARBAGE if name == column else sound[name] for name in ("info", "beat")))


LOG = "UPDATE log SET body = ? WHERE run = (SELECT number FROM runs WHERE run_id = 'bad')"
DOCUMENT = "UPDATE runs SET doc = ? WHERE run_id = 'bad'"
SCHEDULE = "INSERT INTO schedules VALUES ('nightly', 1, ?)"
# What is planted, and whether the run named `bad` can be read no more.
SQLITE: dict[str, tuple[Plant, bool]] = {
    "log and document": (together(sql(LOG, GARBAGE), sql(DOCUMENT, GARBAGE)), True),
    "log and document of other types": (together(sql(LOG, 7), sql(DOCUMENT, 7)), True),
    "an event of an unknown type": (
        together(sql(LOG, b'[{"seq":1,"at":0,"body":{"type":"no_such"}}]'), sql(DOCUMENT, b"{}")),
        True,
    ),
    "document": (sql(DOCUMENT, GARBAGE), False),
    "log": (sql(LOG, GARBAGE), False),
    "due time": (sql("UPDATE tasks SET due_at = 'soon' WHERE run_id = 'bad'"), True),
    "evidence": (sql("UPDATE tasks SET evidence = ? WHERE run_id = 'bad'", GARBAGE), False),
    "runner info": (spoil_runner("info"), False),
    "runner beat": (spoil_runner("beat"), False),
    "schedule": (sql(SCHEDULE, GARBAGE), False),
    "tombstone": (sql("INSERT INTO tombstones VALUES ('gone', 3, ?)", GARBAGE), False),
    "definition": (sql("INSERT INTO definitions VALUES ('abc', ?)", GARBAGE), False),
}
LOG_KEY, STATE_KEY = "workflow/bad/log/000000000001.json", "workflow/bad/state.json"
FOLDER: dict[str, tuple[Plant, bool]] = {
    "log and document": (together(stray(LOG_KEY), stray(STATE_KEY)), True),
    "a folder for a log": (together(folder(LOG_KEY), stray(STATE_KEY)), False),
    "a folder for a document": (folder(STATE_KEY), True),
    "document": (stray(STATE_KEY), False),
    "a later commit": (stray("workflow/bad/log/000000000009.json"), True),
    "notes in the log": (stray("workflow/bad/log/notes.txt"), False),
    "notes in the inbox": (stray("workflow/bad/inbox/notes.txt"), False),
    "a copy in the inbox": (stray("workflow/bad/inbox/000000000001.json.bak"), False),
    "a folder in the log": (stray("workflow/bad/log/old/000000000001.json"), False),
    "a name that is no key": (stray("workflow/bad/log/my notes (2).txt"), False),
    "a hidden file": (stray("workflow/bad/.notes.swp"), False),
    "a run that is a file": (stray("workflow/notes.txt"), False),
    "a folder that is no run": (stray("workflow/no run~/state.json"), False),
    "an index entry": (together(stray("index/notes.txt"), stray("index/1~~2"), stray("index/x y")), False),
    "an active entry": (together(stray("active/notes.txt"), stray("active/1~x~y"), stray("active/1~-x~1")), False),
    "a task entry": (together(stray("tasks/notes.txt"), stray("tasks/default/0-now/1~x~y~z")), False),
    "a held entry": (together(stray("held/notes.txt"), stray("held/r/notes.txt"), stray("held/r/x~1-y")), False),
    "a wake-up": (together(stray("wake/notes.txt"), stray("wake/bad~x"), stray("wake/bad~" + "9" * 200)), False),
    "a runner's copy": (stray("runners/r.json.bak"), False),
    "a runner": (together(stray("runners/runner-x.json"), stray("living/runner-x")), False),
    "a living entry": (together(stray("living/a b"), stray("living/deep/x")), False),
    "a schedule": (stray("schedules/nightly.json"), False),
    "a schedule's copy": (stray("schedules/nightly.json~"), False),
    "a purge": (together(stray("purges/notes~"), stray("purges/a/b")), False),
    "a definition": (stray("definitions/x.json"), False),
}
RUNNERS = ("runner info", "runner beat", "a runner")
# What doctor sees only when it reads every ended run, and what harms no run until it is asked for.
DEEP = ("a run that is a file", "a folder that is no run", "an index entry", "a runner's copy")
HARMLESS = ("evidence", "tombstone", "definition", "a definition")
CASES = [("sqlite", name) for name in SQLITE] + [("file", name) for name in FOLDER]


def open_kind(buoy: Buoy, kind: str) -> None:
    if kind == "file":
        buoy.store = f"file://{place(buoy)}"


def two_runs(buoy: Buoy, kind: str, how: str) -> bool:
    """A sound run and one that is spoiled. Whether the second cannot be read any more."""
    open_kind(buoy, kind)
    for name in ("good", "bad"):
        buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", name)
    plant, broken = (SQLITE if kind == "sqlite" else FOLDER)[how]
    plant(buoy)
    return broken


def run_ids(buoy: Buoy, *words: str) -> list[str]:
    return [each["document"]["run_id"] for each in buoy.json("ps", *words)["runs"]]


@pytest.mark.parametrize(("kind", "how"), CASES)
def test_every_command_shows_the_others_and_names_what_is_broken(buoy: Buoy, kind: str, how: str) -> None:
    broken = two_runs(buoy, kind, how)
    for words in ((), ("--all",)):
        assert "good" in run_ids(buoy, *words)
        told = [each["id"] for each in buoy.json("ps", *words).get("broken", ())]
        assert told == (["bad"] if broken else [])
    assert "good" in buoy("ps").stdout
    report = buoy.json("status", code=1)
    assert report["runs"]["pending"] >= 1
    assert [each["id"] for each in report["broken"] if each["kind"] == "run"] == (["bad"] if broken else [])
    troubles = {each["run_id"] for each in buoy.json("why", "--all", code=1)["troubles"]}
    assert {"good"} <= troubles and ("bad" in troubles or not broken)
    buoy("schedule", "list")
    # Lists need no log. Whether a run needs a recovery cannot be told without one, so it is not resumed.
    refused = broken or how == "log"
    found = buoy.json("resume", "--all", code=1 if refused else 0)["runs"]
    assert {each["run_id"] for each in found if "error" in each} == ({"bad"} if refused else set())
    swept = buoy.json("sweeper", "--once", code=1 if broken or how in RUNNERS else 0)
    assert swept["unknown"] == broken and bool(swept["troubles"]) == (broken or how in RUNNERS)
    close = ("doctor", "--rebuild") if how in DEEP else ("doctor",)
    assert buoy.json(*close, code=0 if how in HARMLESS else 1)["healthy"] == (how in HARMLESS)
    buoy.drive()
    assert "good" in run_ids(buoy, "--status", "completed"), "the worker drives the others"


BROKEN = [(kind, how) for kind, how in CASES if (SQLITE if kind == "sqlite" else FOLDER)[how][1]]


@pytest.mark.parametrize(("kind", "how"), BROKEN)
def test_a_broken_run_is_copied_and_removed_when_a_person_asks_for_it(buoy: Buoy, kind: str, how: str) -> None:
    two_runs(buoy, kind, how)
    told = buoy.json("why", "bad")
    assert told["status"] is None and told["health"] == "unknown"
    assert any("buoy purge bad --broken" in line for line in told["you_can"])
    assert "add --yes" in buoy("purge", "bad", "--broken", code=2).stderr
    seen = buoy.json("purge", "bad", "--broken", "--dry-run")
    assert not seen["purged"] and seen["reason"]
    done = buoy.json("purge", "bad", "--broken", "--yes", "--export", "kept.zip")
    kept = buoy.folder / "kept.zip"
    assert done["purged"] and done["file"] == "kept.zip" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    with zipfile.ZipFile(kept) as packed:
        names = packed.namelist()
        about = json.loads(packed.read("MANIFEST.json"))
    assert about["run_id"] == "bad" and about["reason"] == done["reason"] and len(names) == done["parts"] + 1
    assert "could not be read" in buoy("show", "bad", code=2).stderr, "its tombstone tells why"
    assert "used again" in buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "bad", code=2).stderr
    assert run_ids(buoy) == ["good"] and "broken" not in buoy.json("ps", "--all")
    assert buoy.json("doctor", "--rebuild", code=0)["healthy"]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_the_bytes_of_a_broken_run_are_copied_as_they_are(buoy: Buoy, kind: str) -> None:
    two_runs(buoy, kind, "log and document")
    buoy("purge", "bad", "--broken", "--yes", "--export", "kept.zip")
    names = ("log/1", "document") if kind == "sqlite" else ("log/000000000001.json", "state.json")
    with zipfile.ZipFile(buoy.folder / "kept.zip") as packed:
        assert [packed.read(name) for name in names] == [GARBAGE, GARBAGE]


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_run_that_can_be_read_is_never_removed_as_broken(buoy: Buoy, kind: str) -> None:
    two_runs(buoy, kind, "document")
    for name in ("good", "bad"):
        assert "can be read" in buoy("purge", name, "--broken", "--yes", code=2).stderr
    assert "no run 'none'" in buoy("purge", "none", "--broken", "--yes", code=2).stderr
    assert not list(buoy.folder.glob("*.zip"))
    assert "--broken" in buoy("purge", "good", code=2).stderr
    assert "--broken" in buoy("purge", "good", "--older-than", "1d", code=2).stderr


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_copy_never_overwrites_a_file(buoy: Buoy, kind: str) -> None:
    two_runs(buoy, kind, "log and document")
    (buoy.folder / "bad.broken.zip").write_text("mine")
    assert "name another file" in buoy("purge", "bad", "--broken", "--yes", code=2).stderr
    assert [each["id"] for each in buoy.json("ps")["broken"]] == ["bad"], "nothing was removed"
    assert (buoy.folder / "bad.broken.zip").read_text() == "mine"


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_worker_tells_of_a_broken_run_and_drives_the_others(buoy: Buoy, spawn: Spawn, kind: str) -> None:
    two_runs(buoy, kind, "log and document")
    worker = spawn("worker", str(FLOWS))
    until(lambda: "good completed" in worker.output(), worker)
    until(lambda: "trouble:" in worker.output() and "bad" in worker.output(), worker)
    buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "later")
    until(lambda: "later completed" in worker.output(), worker)
    assert worker.output().count("trouble:") == 1, "the worker reports it once"
    worker.popen.terminate()
    assert worker.popen.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(("kind", "how"), [("sqlite", "schedule"), ("file", "a schedule")])
def test_a_broken_schedule_is_named_and_removed_and_the_others_fire(buoy: Buoy, kind: str, how: str) -> None:
    two_runs(buoy, kind, how)
    buoy("schedule", "add", "other", f"{FLOWS}:divide", "--arg", "number=5", "--every", "1h")
    found = buoy.json("schedule", "list")
    assert [each["name"] for each in found["schedules"]] == ["other"]
    assert [(each["kind"], each["id"]) for each in found["broken"]] == [("schedule", "nightly")]
    assert "remove it" in buoy("schedule", "pause", "nightly", code=1).stderr
    buoy("schedule", "remove", "nightly")
    assert "broken" not in buoy.json("schedule", "list")


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_message_that_cannot_be_read_keeps_no_other_run_from_its_own(buoy: Buoy, spawn: Spawn, kind: str) -> None:
    open_kind(buoy, kind)
    for name in ("bad", "good"):
        buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "tea"}', "--id", name)
    worker = spawn("worker", str(FLOWS))
    until(lambda: len(buoy.json("ps", "--status", "awaiting_input")["runs"]) == 2, worker)
    if kind == "sqlite":
        sql(
            """INSERT INTO inbox SELECT number, 1, 'd', 'answer', 'x', 0.0, ? FROM runs WHERE run_id = 'bad'""", GARBAGE
        )(buoy)
        sql("UPDATE tasks SET inbox_head = 1 WHERE run_id = 'bad'")(buoy)
    else:
        stray("workflow/bad/inbox/000000000001.json")(buoy)
        stray("wake/bad~000000000001", b"{}")(buoy)
    buoy("answer", "good", "yes")
    until(lambda: "good completed" in worker.output(), worker)
