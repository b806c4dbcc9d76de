"""`buoy export` and `buoy import`."""

from __future__ import annotations

import json

from .conftest import FLOWS, Buoy


def test_a_run_goes_into_a_file_and_comes_into_another_store(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    assert "s1.json: run s1" in buoy("export", "s1", "-o", "s1.json").stdout
    assert "exists already" in buoy("export", "s1", "-o", "s1.json", code=2).stderr
    data = (buoy.folder / "s1.json").read_bytes()
    assert buoy("export", "s1").stdout.encode() == data
    found = buoy.json("export", "s1", "-o", "s1.json", "--force")
    assert (found["run_id"], found["bytes"]) == ("s1", len(data))

    elsewhere = Buoy(buoy.folder)
    elsewhere.store = f"file://{buoy.folder / 'lab'}"
    told = elsewhere("import", "s1.json")
    assert "s1: imported" in told.stdout
    assert "it is on hold; continue it: buoy resume s1" in told.stderr
    assert "was there already" in elsewhere("import", "s1.json").stdout
    assert elsewhere("export", "s1").stdout.encode() == data
    assert "held for a person to look at" in elsewhere("why", "s1").stdout
    elsewhere("worker", str(FLOWS), "--until-idle")
    assert elsewhere.json("show", "s1")["document"]["status"] == "paused"
    elsewhere("resume", "s1")
    elsewhere("worker", str(FLOWS), "--until-idle")
    elsewhere("answer", "s1", "yes")
    elsewhere("worker", str(FLOWS), "--until-idle")
    assert elsewhere("result", "s1").stdout == '"1 lamp"\n'


def test_a_broken_bundle_is_told_in_one_line(buoy: Buoy) -> None:
    path = buoy.folder / "bad.json"
    path.write_text(json.dumps({"kind": "buoy-run", "format": 1, "run_id": "x", "log": []}))
    assert "must begin with workflow_created" in buoy("import", "bad.json", code=2).stderr
    assert "wrong: " in buoy("import", "bad.json", "--check", code=2).stdout
    assert buoy.json("import", "bad.json", "--check", code=2)["findings"][0]["weight"] == "wrong"
    assert "cannot be read" in buoy("import", "nowhere.json", code=2).stderr
    assert "choose one" in buoy("import", "bad.json", "--resume", "--quarantine", code=2).stderr
    assert buoy.json("import", "bad.json", code=2)["error"]["type"] == "BadInput"


def test_a_run_of_a_spec_takes_its_definition_along(buoy: Buoy) -> None:
    (buoy.folder / "two.yaml").write_text("name: two\nsteps:\n  - {id: a, run: echo 1}\n  - {id: b, run: echo 2}\n")
    buoy("start", "two.yaml", "--id", "t1")
    buoy("export", "t1", "-o", "t1.json")
    data = (buoy.folder / "t1.json").read_bytes()
    assert len(json.loads(data)["definitions"]) == 1
    elsewhere = Buoy(buoy.folder)
    elsewhere.store = f"sqlite:///{buoy.folder / 'lab.db'}"
    elsewhere("import", "t1.json", "--resume")
    elsewhere("worker", "--until-idle")
    assert elsewhere.json("show", "t1")["document"]["status"] == "completed"
    third = Buoy(buoy.folder)
    third.store = f"file://{buoy.folder / 'third'}"
    third("import", "t1.json")
    assert third("export", "t1").stdout.encode() == data


def test_an_incident_is_brought_as_it_was_found(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy("export", "s1", "--as-found", "-o", "s1.json")
    told = json.loads((buoy.folder / "s1.json").read_text())
    assert told["tasks"][0]["state"] == "due"
    told["tasks"] = []
    (buoy.folder / "s1.json").write_text(json.dumps(told))
    elsewhere = Buoy(buoy.folder)
    elsewhere.store = f"file://{buoy.folder / 'lab'}"
    assert "choose one" in elsewhere("import", "s1.json", "--as-found", "--resume", code=2).stderr
    done = elsewhere("import", "--as-found", "s1.json")
    assert "s1: imported, 1 event, 0 messages; it is pending" in done.stdout
    assert "its task is missing; what is wrong with it: buoy why s1" in done.stderr
    assert elsewhere.json("import", "--as-found", "s1.json")["new"] is False
    told["document"]["status"] = "awaiting_input"
    (buoy.folder / "s1.json").write_text(json.dumps(told))
    found = elsewhere.json("import", "--as-found", "--check", "s1.json")["findings"]
    assert [finding["weight"] for finding in found] == ["doubtful"]
