"""Runners of which nothing but the name can be read: who lives keeps its work, who is dead loses it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from msgspec.structs import replace

from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId, RunnerId
from buoy.engine.client.client import Client
from buoy.errors import WrongState
from buoy.host.ids import SystemIds
from buoy.operations.inspect.explanation import explain_run
from buoy.operations.maintenance.broken_runners import broken_runners, declare_dead, set_aside
from buoy.operations.maintenance.doctor import Doctor
from buoy.operations.maintenance.doctor_report import DoctorReport
from buoy.operations.maintenance.status import store_status
from buoy.ports.records import Beat, RunQuery, Wants
from buoy.ports.store import Store
from buoy.recovery.sweep.sweep import sweep
from buoy.stores.objects.runners import keys as runner_keys
from buoy.testing.contracts.harness import Author
from buoy.wiring.app import open_client
from buoy.wiring.local_worker import runner_info
from tests.postgres_server import fresh_url

KINDS = ("sqlite", "file")
HOLD = """
import asyncio, sys
from buoy.core.ids import RunnerId
from buoy.ports.records import Wants
from buoy.stores import open_store
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.wiring.inspection import liveness_of
from buoy.wiring.local_worker import runner_info
from msgspec.structs import replace

async def main(url, half):
    store = await open_store(url, SystemClock())
    info = replace(runner_info(SystemIds(), "worker", queues=("default",)), id=RunnerId("holder"))
    liveness_of(store).announce(info.id)
    if half:
        await store._runners._index.add([("living/holder", b"{}")])
    else:
        await store.register(info)
        tasks = await store.claim_tasks(info.id, Wants(), 10)
        assert [task.run_id for task in tasks] == ["one"], tasks
    print("holds", flush=True)
    sys.stdin.read()

asyncio.run(main(sys.argv[1], sys.argv[2] == "half"))
"""


def url_of(place: Path, kind: str) -> str:
    return f"file://{place / 'store'}" if kind == "file" else f"sqlite:///{place / 'store.db'}"


@contextmanager
def holder(url: str, how: str = "whole") -> Iterator[subprocess.Popen[str]]:
    """A real process that registers (or only begins to) and holds all that is due."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, url, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "holds\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def spoil(place: Path, kind: str) -> None:
    if kind == "file":
        (place / "store" / runner_keys.living_key(RunnerId("holder"))).write_bytes(b"\x00garbage")
        return
    with sqlite3.connect(place / "store.db") as connection:
        changed = connection.execute("UPDATE runners SET info = x'00ff' WHERE runner_id = 'holder'").rowcount
    assert changed == 1


def on(url: str, work: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_client(url) as client:
            await work(client)

    asyncio.run(main())


async def one_run(client: Client) -> None:
    from itertools import count

    await Author(RunId("one"), client.clock, count(1), {}).create(client.store)


async def held_by(store: Store) -> RunnerId | None:
    (record,) = (await store.find_runs(RunQuery())).runs
    return record.holder


@pytest.mark.parametrize("kind", KINDS)
def test_a_runner_whose_record_is_garbage_keeps_its_runs_until_its_process_ends(tmp_path: Path, kind: str) -> None:
    url = url_of(tmp_path, kind)
    on(url, one_run)
    with holder(url) as process:
        spoil(tmp_path, kind)

        async def lives(client: Client) -> None:
            (record,) = await client.store.runners()
            assert record.info.id == "holder" and record.unreadable
            await sweep(client)
            assert await held_by(client.store) == "holder", "what cannot be read proves no death"

        on(url, lives)
        process.kill()
        process.wait()

        async def dead(client: Client) -> None:
            done = await sweep(client)
            assert done.dead_runners == 1 and done.resumed == 1
            assert await held_by(client.store) is None
            assert await client.store.runners() == []

        on(url, dead)


@pytest.mark.parametrize("kind", KINDS)
def test_a_runner_whose_record_is_garbage_is_told_by_doctor(tmp_path: Path, kind: str) -> None:
    url = url_of(tmp_path, kind)
    on(url, one_run)
    with holder(url):
        spoil(tmp_path, kind)

        async def look(client: Client) -> None:
            report = await Doctor(client, progress=lambda text: None).examine()
            assert any("holder" in each.text and "cannot be read" in each.text for each in report.troubles)

        on(url, look)


# ---- the way out


def place_garbage(url: str, runner: str = "ghost") -> Callable[[], bytes]:
    """The record of a runner that cannot be read, and that no process stands behind. Gives a look at what is stored."""
    if url.startswith("file:"):
        folder = Path(url.removeprefix("file://"))
        (folder / "living").mkdir(exist_ok=True)
        (folder / runner_keys.living_key(RunnerId(runner))).write_bytes(b"\x00garbage")
        return lambda: base64.b64decode(
            json.loads((folder / runner_keys.runner_key(RunnerId(runner))).read_bytes())["found"]
        )
    if url.startswith("sqlite:"):
        file = url.removeprefix("sqlite:///")
        with sqlite3.connect(file) as connection:
            connection.execute(
                "INSERT INTO runners (runner_id, info, registered_at, beat_at, beat) VALUES (?, ?, 1, 1, '{}')",
                (runner, b"\x00garbage"),
            )

        def row() -> bytes:
            with sqlite3.connect(file) as connection:
                found: bytes = connection.execute("SELECT info FROM runners WHERE runner_id = ?", (runner,)).fetchone()[
                    0
                ]
                return found

        return row
    on_server(
        url,
        "INSERT INTO runners (runner_id, info, host, pid, registered_at, beat_at, beat_number, beat) "
        "VALUES (%s, %s, 'h', 1, 1, 1, 0, '{}') RETURNING info",
        (runner, b"\x00garbage"),
    )
    return lambda: on_server(url, "SELECT info FROM runners WHERE runner_id = %s", (runner,))


def on_server(url: str, statement: LiteralString, values: tuple[object, ...]) -> bytes:
    """One statement in the schema of that store, which gives one value."""
    place, _, schema = url.rpartition("&schema=")
    with psycopg.connect(place, autocommit=True, options=f"-c search_path={schema}") as session:
        found = session.execute(statement, values).fetchone()
    assert found is not None
    return bytes(found[0])


@pytest.fixture(params=[*KINDS, "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url() if request.param == "postgres" else url_of(tmp_path, request.param)


async def healed(client: Client, *, fix: bool = True) -> DoctorReport:
    return await Doctor(client, fix=fix, progress=lambda text: None, apart_s=0.0).examine()


def test_a_record_that_no_process_stands_behind_is_set_aside_and_its_bytes_are_kept(url: str) -> None:
    on(url, one_run)
    stored = place_garbage(url)

    async def look(client: Client) -> None:
        told = (await store_status(client)).troubles
        assert any("ghost" in text and "`buoy doctor`" in text for text in told), "the rest is shown, and it is named"
        before = await healed(client, fix=False)
        assert before.counts == {"runner": 1} and "--fix sets it aside" in before.troubles[0].text
        after = await healed(client)
        assert after.healthy and after.fixed == 1
        assert (await healed(client, fix=False)).counts == {}
        assert not any("ghost" in text for text in (await store_status(client)).troubles)
        assert not (await sweep(client)).troubles

    on(url, look)
    assert stored() == b"\x00garbage"


def hold_by_ghost(url: str) -> None:
    """A run that a runner holds whose record is spoiled afterwards, without any process behind it."""

    async def claim(client: Client) -> None:
        info = replace(runner_info(SystemIds(), "worker", queues=("default",)), id=RunnerId("ghost"))
        await client.store.register(info)
        assert [task.run_id for task in await client.store.claim_tasks(info.id, Wants(), 10)] == ["one"]

    on(url, one_run)
    on(url, claim)
    if url.startswith("postgresql:"):
        on_server(url, "UPDATE runners SET info = %s WHERE runner_id = 'ghost' RETURNING info", (b"\x00garbage",))
    elif url.startswith("sqlite:"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("UPDATE runners SET info = x'00ff' WHERE runner_id = 'ghost'")
    else:
        place_garbage(url)


def test_a_record_that_holds_a_run_is_left_until_a_person_declares_its_runner_dead(url: str) -> None:
    hold_by_ghost(url)
    words = [sys.executable, "-m", "buoy", "doctor", "--store", url]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    assert "--declare-dead ghost" in said and "--fix" not in said, "no repair helps here"

    async def look(client: Client) -> None:
        await sweep(client)
        left = await healed(client)
        assert left.counts == {"runner": 1} and left.fixed == 0
        assert "it holds 1 run" in left.troubles[0].text and "--declare-dead ghost" in left.troubles[0].text
        assert [each.by_person for each in left.unrepaired] == [True]
        assert await held_by(client.store) == "ghost", "what cannot be read proves no death"
        told = await explain_run(client, "one", Wording())
        assert any("cannot be read" in text for text in told.wrong)
        assert any("buoy doctor --declare-dead ghost" in text for text in told.you_can)
        assert await declare_dead(client, "ghost") == 1
        assert await held_by(client.store) is None
        assert (await healed(client, fix=False)).healthy

    on(url, look)


def test_a_runner_that_lives_or_can_be_read_is_not_declared_dead(tmp_path: Path) -> None:
    url = url_of(tmp_path, "sqlite")
    on(url, one_run)
    with holder(url):

        async def refused(client: Client) -> None:
            with pytest.raises(WrongState, match="no record that cannot be read"):
                await declare_dead(client, "holder")
            spoil(tmp_path, "sqlite")
            with pytest.raises(WrongState, match="may live"):
                await declare_dead(client, "holder")
            report = await healed(client)
            assert (
                report.counts == {"runner": 1} and report.fixed == 0 and "stop that process" in report.troubles[0].text
            )
            assert await held_by(client.store) == "holder"

        on(url, refused)


def test_a_runner_that_beats_between_two_looks_is_not_set_aside(tmp_path: Path) -> None:
    url = url_of(tmp_path, "sqlite")
    on(url, one_run)
    place_garbage(url)

    async def look(client: Client) -> None:
        before = await broken_runners(client)
        assert await client.store.beat(RunnerId("ghost"), Beat(number=1))
        assert await set_aside(client, before) == set()
        assert [each.record.info.id for each in await broken_runners(client)] == ["ghost"]

    on(url, look)


def test_a_beat_writes_a_damaged_record_again(tmp_path: Path) -> None:
    url = url_of(tmp_path, "file")

    async def beats(client: Client) -> None:
        info = runner_info(SystemIds(), "worker")
        await client.store.register(info)
        assert await client.store.beat(info.id, Beat(number=1))
        (tmp_path / "store" / runner_keys.living_key(info.id)).write_bytes(b"garbage")
        assert await client.store.beat(info.id, Beat(number=2))
        (record,) = await client.store.runners()
        assert record.unreadable is None and record.beat.number == 2 and record.info == info

    on(url, beats)


def test_what_a_process_left_that_was_killed_while_it_registered_is_swept_away(tmp_path: Path) -> None:
    url = url_of(tmp_path, "file")
    on(url, one_run)
    entry = tmp_path / "store" / runner_keys.living_key(RunnerId("holder"))
    with holder(url, "half") as process:

        async def lives(client: Client) -> None:
            assert await client.store.unregistered() == ["holder"]
            await sweep(client)

        on(url, lives)
        assert entry.exists(), "it may be about to register"
        process.kill()
        process.wait()

        async def swept(client: Client) -> None:
            await sweep(client)
            assert await client.store.unregistered() == []
            report = await Doctor(client, progress=lambda text: None).examine()
            assert report.healthy, report.troubles

        on(url, swept)
    assert not entry.exists()
    assert os.listdir(tmp_path / "store" / "runners-locks") == []
