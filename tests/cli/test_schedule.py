"""`buoy schedule`."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from buoy.cli.main import main
from buoy.cli.schedule import schedule_group

from .conftest import FLOWS, Buoy


def test_a_schedule_is_added_listed_paused_and_removed(buoy: Buoy) -> None:
    told = buoy("schedule", "add", "nightly", f"{FLOWS}:divide", "--arg", "number=5", "--cron", "0 3 * * *").stdout
    assert told.startswith("nightly: cron '0 3 * * *', UTC, next 20")
    found = buoy.json("schedule", "list")["schedules"]
    assert [(each["name"], each["workflow"], each["input"]) for each in found] == [("nightly", "divide", {"number": 5})]
    assert "nightly" in buoy("schedule", "list").stdout
    assert "is paused" in buoy("schedule", "pause", "nightly").stdout
    assert "paused" in buoy("schedule", "list").stdout
    assert "is resumed" in buoy("schedule", "resume", "nightly").stdout
    assert buoy.json("schedule", "remove", "nightly")["removed_at"] > 0
    assert buoy("schedule", "list").stdout == "no schedules\n"


def test_a_wrong_schedule_is_told_in_one_line(buoy: Buoy) -> None:
    add = ("schedule", "add", "s", f"{FLOWS}:divide", "--arg", "number=5")
    assert "never fires" in buoy(*add, "--cron", "0 0 31 2 *", code=2).stderr
    assert "either" in (neither := buoy(*add, code=2).stderr) and "found neither; give one of them" in neither
    assert "found both; give one of them" in buoy(*add, "--every", "1h", "--cron", "@daily", code=2).stderr
    named = buoy("schedule", "add", "bad name", f"{FLOWS}:divide", "--arg", "number=5", "--every", "1h", code=2).stderr
    assert "schedule name 'bad name' is not allowed: use letters" in named and "run id" not in named
    assert "time zone" in buoy(*add, "--cron", "@daily", "--zone", "Here", code=2).stderr
    assert "not a duration" in buoy(*add, "--every", "often", code=2).stderr
    missing = buoy("schedule", "add", "s", f"{FLOWS}:divide", "--every", "1h", code=2).stderr
    assert "invalid arguments for workflow divide: missing `number`" in missing
    assert missing.count("\n") == 1
    buoy(*add, "--every", "1h")
    other = buoy(*add, "--every", "2h", "--catch-up", "all", code=2).stderr
    assert "schedule s exists already, with another interval, way to catch up; remove it first" in other
    assert "no schedule 'x'" in buoy("schedule", "remove", "x", code=2).stderr


def test_a_worker_starts_the_run_of_a_time(buoy: Buoy) -> None:
    buoy("schedule", "add", "quick", f"{FLOWS}:divide", "--arg", "number=5", "--every", "1s")
    for _ in range(50):
        buoy.drive()
        found = buoy.json("ps", "--status", "completed", "--text", "quick-")["runs"]
        if found:
            break
    assert re.fullmatch(r"quick-\d{8}T\d{6}Z", found[0]["document"]["run_id"])


@pytest.mark.parametrize("name", list(schedule_group.commands))
def test_every_verb_has_an_example_and_its_exit_codes(name: str) -> None:
    shown = CliRunner().invoke(main, ["schedule", name, "--help"], terminal_width=100).output
    assert re.search(rf"Example:\n +buoy schedule {name}", shown)
    assert "Exit code: 0" in shown and "--store" in shown and "--json" in shown


def test_a_spec_can_be_scheduled(buoy: Buoy) -> None:
    (buoy.folder / "two.yaml").write_text("name: two\nsteps:\n  - {id: a, run: echo 1}\n")
    buoy("schedule", "add", "specs", "two.yaml", "--every", "1s")
    for _ in range(50):
        buoy("worker", "--until-idle")
        found = buoy.json("ps", "--status", "completed", "--text", "specs-")["runs"]
        if found:
            break
    assert found[0]["document"]["workflow"] == "spec:two"
