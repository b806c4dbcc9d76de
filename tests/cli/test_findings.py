"""Troubles that lay deeper than the command line, and were first seen there."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, cast

import buoy as library
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.ports.pace import Pace
from buoy.recovery.sweep.sweeper import Sweeper
from tests.patience import until

from .conftest import FLOWS, Buoy

MANY = """
import asyncio, buoy

@buoy.workflow
async def many() -> list[object]:
    return list(await asyncio.gather(*(buoy.ask(f"Question {n}?", kind="confirm") for n in range(60))))
"""


def test_a_run_that_never_began_is_pending_again_when_it_is_resumed(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    buoy("pause", "s1")
    buoy("resume", "s1")
    assert buoy.json("show", "s1")["document"]["status"] == "pending"


def test_the_sixtieth_open_question_can_be_answered(buoy: Buoy) -> None:
    (buoy.folder / "many.py").write_text(MANY)
    buoy("start", "many.py", "--id", "m1")
    buoy("worker", "many.py", "--until-idle")
    buoy("answer", "m1", "yes", "--question", "m1/ask#60/0")


def test_a_run_paused_for_its_version_goes_on_when_a_matching_worker_appears(buoy: Buoy) -> None:
    text = "import buoy\n@buoy.step\ndef {0}() -> int:\n    return 1\n@buoy.workflow\ndef flow() -> bool:\n"
    text += "    {0}()\n    buoy.wait_signal('go')\n    return True\n"
    for name, step in (("version_1", "a"), ("version_2", "b")):
        (buoy.folder / f"{name}.py").write_text(text.format(step))
    buoy("start", "version_1.py", "--id", "v1")
    buoy("worker", "version_1.py", "--until-idle")
    buoy("signal", "v1", "go")
    buoy("worker", "version_2.py", "--until-idle")
    assert buoy.json("show", "v1")["document"]["status"] == "paused"
    buoy("worker", "version_1.py", "--until-idle")
    assert buoy("result", "v1").stdout == "true\n"


def test_a_workflow_with_a_colon_in_its_name_can_be_started(tmp_path: Path) -> None:
    @library.workflow(name="team:nightly")
    async def nightly() -> int:
        return 1

    async def work() -> int:
        async with library.open(f"sqlite:///{tmp_path}/buoy.db", workflows=[nightly]) as app:
            return await (await app.start(nightly)).result()

    assert asyncio.run(work()) == 1


def test_a_damaged_document_hides_no_other_run(buoy: Buoy) -> None:
    for name in ("s1", "s2"):
        buoy("start", f"{FLOWS}:sleeper", "--id", name)
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        connection.execute("UPDATE runs SET doc = '{broken' WHERE run_id = 's1'")
    assert "s2" in buoy("ps").stdout
    assert "waits in queue" in buoy("why", "s1").stdout


def test_a_sweeper_survives_an_error_that_nobody_foresaw() -> None:
    class Broken:
        pace = Pace()

        async def runners(self, **_: object) -> list[object]:
            raise KeyError("unforeseen")

    async def work() -> bool:
        broken = cast(Any, Broken())
        client = Client(broken, Registry(), clock=SystemClock(), ids=SystemIds(), liveness=broken)
        sweeper = Sweeper(broken, broken, client=client)
        sweeper.start()
        await until(lambda: sweeper.errors > 0, "the error")
        assert "unforeseen" in str(sweeper.last_error)
        alive = sweeper._task is not None and not sweeper._task.done()
        await sweeper.stop()
        return alive

    assert asyncio.run(work())
