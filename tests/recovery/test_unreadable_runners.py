"""Runners of which nothing but the name can be read: who lives keeps its work, who is dead loses it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.engine.client.client import Client
from buoy.operations.doctor import Doctor
from buoy.ports.records import RunQuery
from buoy.ports.store import Store
from buoy.recovery.sweep.sweep import sweep
from buoy.stores.objects import runner_keys
from buoy.testing.contracts.harness import Author
from buoy.wiring import open_client

KINDS = ("sqlite", "file")
HOLD = """
import asyncio, sys
from buoy.core.ids import RunnerId
from buoy.ports.records import Wants
from buoy.stores import open_store
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.wiring import liveness_of, runner_info
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


def test_a_beat_writes_a_damaged_record_again(tmp_path: Path) -> None:
    url = url_of(tmp_path, "file")

    async def beats(client: Client) -> None:
        from buoy.host.ids import SystemIds
        from buoy.ports.records import Beat
        from buoy.wiring import runner_info

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
