"""What the commands say about runs that stand still, and whether the commands that they name work as they stand."""

from __future__ import annotations

import shlex

import click

from buoy.cli.main import main
from buoy.core.explain.explain import explain
from tests.core.test_explain import TABLE

from .conftest import FLOWS, Buoy

COMMANDS = (
    "run start worker why events answer signal pause resume cancel retry migrate release recover doctor result purge"
    " jobs slurm sync-status watch"
)


def test_every_command_that_is_named_can_be_typed_as_it_stands() -> None:
    parsed, parent = 0, click.Context(main, **main.context_settings)
    for _, given, _ in TABLE:
        for line in explain(given).you_can:
            _, found, words = line.partition("buoy ")
            if not found:
                continue
            name, *rest = shlex.split(words)
            command = main.get_command(parent, name)
            assert command is not None and name in COMMANDS.split(), line
            command.make_context(name, rest, parent)
            parsed += 1
    assert parsed > 40


def test_a_failed_run_shows_its_traceback_and_how_to_try_it_again(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:risky", "--id", "f1", code=1)
    shown = buoy("show", "f1").stdout
    assert "traceback" in shown and "return prices[" in shown and "KeyError: 'lamp'" in shown
    assert "steps     1 completed, 1 failed, 0 open, 1 undone" in shown
    told = buoy("why", "f1").stdout
    assert "f1 has failed: step price#1: KeyError: 'lamp'" in told and "buoy/engine" not in told
    recovered = buoy("recover", "f1").stdout
    assert "needs no recovery: it is failed" in recovered and f"buoy retry f1 --store {buoy.store}" in recovered
    assert "`buoy retry f1` tries it again" in buoy("resume", "f1", code=2).stderr


def test_a_parent_of_a_failed_child_is_tried_again_with_a_new_child(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:wrapped", "--id", "w1", code=1)
    assert "see why child w1." in buoy("why", "w1").stdout
    assert "runs again: risky#1" in buoy("retry", "w1", "--dry-run").stdout
    buoy("retry", "w1", "--yes")
    buoy.drive()
    children = buoy.json("ps", "--all", "--parent", "w1")["runs"]
    assert [each["document"]["status"] for each in children] == ["failed", "failed"]


def test_a_paused_run_needs_no_recovery_but_somebody_who_resumes_it(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    buoy("pause", "s1", "--reason", "lunch")
    assert "Open: the question 'Ship it?'." in buoy("why", "s1").stdout
    assert "lunch" in buoy("show", "s1").stdout
    told = buoy("recover", "s1").stdout
    assert "needs no recovery: it is paused (user: lunch)" in told and "buoy resume s1" in told


def test_who_resumes_an_answered_run_is_not_asked_again(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    buoy("answer", "s1", "yes")
    back = buoy.json("resume", "s1")
    assert "questions" not in back and back["text"] == "its answer is there, and not taken up yet"
    listed = buoy("resume").stderr
    assert "no worker is alive; start one to continue: buoy worker FILE.py" in listed
    assert "not continue either: Q5" in buoy("recover", "s1").stdout


def test_a_close_look_is_named_where_troubles_are_listed(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    assert "`buoy why --all`" in buoy("status", code=1).stdout
