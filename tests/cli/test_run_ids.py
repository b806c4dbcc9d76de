"""The beginning of a run's id is enough, wherever a command takes a run that exists."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from buoy.cli.main import main
from buoy.stores.sqlite.store import SqliteStore

from .conftest import FLOWS, Buoy

# Deletes for good, so that a slip must not find another run.
WHOLE_ONLY = {"purge"}

# Every other command that takes RUN, with what it needs beside it.
VERBS = {
    "show": [],
    "events": [],
    "logs": ["--json"],
    "why": [],
    "graph": [],
    "answer": ["yes"],
    "signal": ["packed"],
    "pause": [],
    "resume": [],
    "cancel": [],
    "retry": ["--dry-run"],
    "jump": ["ask#1", "--dry-run"],
    "migrate": ["--rename", "a=b"],
    "result": [],
    "recover": ["--dry-run"],
    "recoveries": [],
    "release": [],
    "export": [],
    "published": [],
    "jobs": [],
    "watch": [],
    "sync-status": [],
    "disable": ["a"],
    "reset": ["a"],
}


def takes_run(command: click.Command) -> bool:
    return any(each.metavar and "RUN" in each.metavar for each in command.params if isinstance(each, click.Argument))


def test_the_table_has_every_command_that_takes_a_run() -> None:
    found = {name for name, command in main.every_command().items() if takes_run(command)}
    assert found == set(VERBS) | WHOLE_ONLY


@pytest.mark.parametrize("verb", VERBS)
def test_a_unique_beginning_means_the_run(buoy: Buoy, verb: str) -> None:
    for name in ("lamp-17", "lamp-2", "desk-1"):
        buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", name)
    buoy.drive()
    whole = invoked(buoy, verb, "lamp-17")
    assert "no run" not in whole[1]
    told = invoked(buoy, verb, "lamp-3")
    assert told[0] == 2 and "no run 'lamp-3'" in told[1]
    told = invoked(buoy, verb, "lamp")
    assert told[0] == 2 and "several runs begin with 'lamp': lamp-17, lamp-2; type more of the id" in told[1]
    short = invoked(buoy, verb, "desk")
    assert short[0] == whole[0], short
    assert "no run" not in short[1] and "'desk'" not in short[1]


def invoked(buoy: Buoy, verb: str, run_id: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, [verb, run_id, *VERBS[verb], "--store", buoy.store])
    return found.exit_code, found.output


def test_a_whole_id_wins_over_those_that_begin_with_it(buoy: Buoy) -> None:
    for name in ("lamp", "lamp-1", "lamp-2"):
        buoy("start", f"{FLOWS}:sleeper", "--id", name)
    assert buoy.json("show", "lamp")["document"]["run_id"] == "lamp"
    assert buoy.json("pause", "lamp-1")["run_id"] == "lamp-1"


def test_a_run_stands_for_its_children(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:wrapped", "--id", "wrapped-1", code=1)
    assert len(buoy.json("ps", "--all", "--parent", "wrapped")["runs"]) == 1
    assert buoy.json("show", "wrap")["document"]["run_id"] == "wrapped-1"
    assert buoy.json("result", "wrap", code=1)["run_id"] == "wrapped-1"


def test_starting_a_run_takes_whole_ids_only(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "lamp-1")
    assert buoy("start", f"{FLOWS}:sleeper", "--id", "lamp").stdout == "lamp\n"


def test_removing_a_run_takes_whole_ids_only(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "lamp-1")
    assert "can be read" in buoy("purge", "lamp-1", "--broken", "--yes", code=2).stderr
    assert "lamp-1" not in buoy("purge", "lamp", "--broken", "--yes", code=2).stderr


def test_an_explanation_opens_the_store_once(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server, opening the store costs more than the look."""
    buoy("start", f"{FLOWS}:sleeper", "--id", "order-17")
    opened: list[object] = []
    once = SqliteStore.open

    async def counted(*args: Any, **options: Any) -> SqliteStore:
        opened.append(args)
        return await once(*args, **options)

    monkeypatch.setattr(SqliteStore, "open", counted)
    for typed in ("order-17", "ord"):
        assert buoy("why", typed).stdout.startswith("order-17 is queued")
    assert len(opened) == 2
