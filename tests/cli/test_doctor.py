"""`buoy doctor`."""

from __future__ import annotations

import sqlite3

from .conftest import FLOWS, Buoy


def test_a_store_is_examined_and_mended(buoy: Buoy) -> None:
    assert "no store" in buoy("doctor", code=5).stderr
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    told = buoy("doctor").stdout
    assert "journal mode wal, synchronous full" in told and "1 run looked at" in told and "healthy" in told
    assert buoy.json("doctor")["healthy"] is True

    connection = sqlite3.connect(buoy.folder / "buoy.db", isolation_level=None)
    connection.execute("DELETE FROM tasks")
    connection.execute("UPDATE runs SET doc = replace(CAST(doc AS TEXT), 'pending', 'running'), status = 'running'")
    connection.close()
    found = buoy.json("doctor", code=1)
    assert (found["counts"], found["left"], found["healthy"]) == ({"R2": 1, "Q1": 1}, 2, False)
    told = buoy("doctor", code=1).stdout
    assert "Q1 s1: it is active and has no task" in told and "buoy doctor --fix" in told
    assert "The document and the log disagree" in told
    assert "2 troubles repaired, none left" in buoy("doctor", "--fix").stdout
    assert buoy.json("doctor", "--rebuild")["rebuilt"] == 1
    buoy.drive()
    assert buoy.json("show", "s1")["document"]["status"] == "awaiting_input"


def test_foreign_and_changed_triggers_are_told_and_views_are_only_named(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    connection = sqlite3.connect(buoy.folder / "buoy.db", isolation_level=None)
    connection.execute("CREATE VIEW mine AS SELECT run_id FROM runs")
    told = buoy("doctor").stdout
    assert 'views of your own: "mine"' in told

    connection.execute("CREATE TRIGGER eater AFTER INSERT ON log BEGIN DELETE FROM runs; END")
    told = buoy("doctor", code=1).stdout
    assert 'trigger "eater" is not Buoy\'s' in told and "DROP TRIGGER" in told
    connection.execute("DROP TRIGGER eater")
    buoy("doctor")

    connection.execute("DROP TRIGGER go_on")
    assert 'trigger "go_on" is missing' in buoy("doctor", code=1).stdout
    connection.execute("CREATE TRIGGER go_on INSTEAD OF INSERT ON going_on BEGIN DELETE FROM log; END")
    assert 'trigger "go_on" was changed' in buoy("doctor", code=1).stdout
    connection.close()


def test_what_cannot_be_repaired_is_told_as_that_also_beside_what_was_repaired(buoy: Buoy) -> None:
    for name in ("o1", "o2"):
        buoy("start", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--id", name)
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        connection.execute("UPDATE log SET body = x'7b7d' WHERE run = (SELECT run FROM tasks WHERE run_id = 'o1')")
        connection.execute("DELETE FROM tasks WHERE run_id = 'o2'")
    connection.close()
    assert "repair them: buoy doctor --fix" in buoy("doctor", code=1).stdout
    assert "none of these can be repaired here" in buoy("doctor", "--fix", code=1).stdout
