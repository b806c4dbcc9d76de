"""Commands whose answer is lost: the error names the key, and the same command with that key has one effect."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import buoy as library
from buoy.core.ids import RunId
from buoy.core.limits import UNCLEAR_TRIES_MAX
from buoy.core.log import events as e
from buoy.ports.host import Clock
from buoy.stores import open_store
from buoy.wiring import inspection
from tests.engine.faults import FaultyStore

from .conftest import FLOWS, Buoy

FORMS = {"landed": "after", "not landed": "before"}
FLOW = """
import buoy


@buoy.step
async def {step}() -> int:
    return 1


@buoy.workflow
async def order() -> int:
    found = await {step}()
    await buoy.wait_signal("go")
    return found
"""


def unclear(buoy: Buoy, form: str, *words: str) -> str:
    """The command loses the answer of its commit, and all answers about it until it gives up. The key that it names."""

    async def faulty(url: str, clock: Clock) -> object:
        store = FaultyStore(await open_store(url, clock))
        store.fail("commit", FORMS[form])
        store.fail("landed", "before", times=UNCLEAR_TRIES_MAX - 1)
        return store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspection, "open_store", faulty)
        error = buoy.json(*words, code=5)["error"]
    assert error["type"] == "Unclear" and error["key"] in error["message"]
    return str(error["key"])


def events(buoy: Buoy, run_id: str) -> list[e.Event]:
    async def read() -> list[e.Event]:
        async with library.connect(buoy.store) as client:
            return await client.store.events(RunId(run_id))

    return asyncio.run(read())


def count(buoy: Buoy, run_id: str, kind: type[e.Payload]) -> int:
    return sum(isinstance(event.body, kind) for event in events(buoy, run_id))


def again(buoy: Buoy, form: str, words: list[str], option: str) -> None:
    """The command in doubt; whatever it made runs to its end; then the command once more, with its key."""
    key = unclear(buoy, form, *words)
    if form == "landed":
        buoy.drive()
    buoy(*words, option, key)
    buoy(*words, option, key)
    buoy.drive()


@pytest.mark.parametrize("form", FORMS)
def test_a_start_has_one_effect(buoy: Buoy, form: str) -> None:
    again(buoy, form, ["start", f"{FLOWS}:divide", "--input", '{"number": 5}'], "--id")
    (run,) = buoy.json("ps", "--all")["runs"]
    assert run["document"]["status"] == "completed"


@pytest.mark.parametrize("form", FORMS)
def test_a_retry_has_one_effect_however_far_the_run_has_come_since(buoy: Buoy, form: str) -> None:
    buoy("start", f"{FLOWS}:risky", "--id", "r")
    buoy.drive()
    again(buoy, form, ["retry", "r", "--yes"], "--dedupe")
    assert count(buoy, "r", e.BranchCreated) == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_jump_has_one_effect_however_far_the_run_has_come_since(buoy: Buoy, form: str) -> None:
    given = json.dumps({"witness": str(buoy.witness), "count": 2})
    buoy("start", f"{FLOWS}:parts", "--input", given, "--id", "r")
    buoy.drive()
    again(buoy, form, ["jump", "r", "part#2", "--yes"], "--dedupe")
    assert count(buoy, "r", e.BranchCreated) == 1
    assert buoy.seen().count("done 1") == 2 and buoy.seen().count("done 0") == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_migration_has_one_effect_however_far_the_run_has_come_since(buoy: Buoy, form: str) -> None:
    for name, step in (("before.py", "chrage"), ("after.py", "charge")):
        Path(name).write_text(FLOW.format(step=step))
    buoy("start", "before.py:order", "--id", "r")
    buoy("worker", "before.py", "--until-idle")
    again(buoy, form, ["migrate", "r", "--rename", "chrage=charge"], "--dedupe")
    buoy("signal", "r", "go")
    buoy("worker", "after.py", "--until-idle")
    assert buoy.json("show", "r")["document"]["status"] == "completed"
    assert sum(bool(each.renamed) for each in bound(buoy)) == 1


def bound(buoy: Buoy) -> list[e.VersionBound]:
    return [event.body for event in events(buoy, "r") if isinstance(event.body, e.VersionBound)]


def test_one_key_is_for_one_run(buoy: Buoy) -> None:
    told = buoy("migrate", "--all", "order", "--rename", "a=b", "--dedupe", "k", code=2).stderr
    assert "--dedupe is for one run" in told
