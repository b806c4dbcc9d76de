"""The SQLite store among real processes: several at once, locks of the dead, and SIGKILL in the middle of commits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import pytest

from buoy.core.ids import RunId
from buoy.errors import Unavailable
from buoy.host.clock import SystemClock
from buoy.ports.records import Committed
from buoy.stores.sqlite import lanes
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts.harness import StoreHarness, claimed, committed

from .test_sqlite import Sqlite

COMMITTER = Path(__file__).with_name("committer.py")
HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM runs")
print("locked", flush=True)
sys.stdin.read()
"""
OPEN_AS_NOBODY = """
import asyncio, os, sys, sqlite3, tempfile, urllib.parse
from pathlib import Path
from buoy.errors import StoreUnusable
from buoy.stores.sqlite.store import SqliteStore
from buoy.host.clock import SystemClock
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
async def main():
    store = await SqliteStore.open(Path(sys.argv[1]), clock=SystemClock())
    await store.define("v", b"{}")
try:
    asyncio.run(main())
except StoreUnusable as error:
    print(error)
"""


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def acknowledged(process: subprocess.Popen[str], lines: int | None = None) -> list[list[str]]:
    """What the process said was done; complete lines only, since a kill may cut the last one."""
    assert process.stdout is not None
    return [line.split() for line in islice(process.stdout, lines) if line.endswith("\n")]


async def check(store: SqliteStore, acks: list[list[str]]) -> None:
    """All that was acknowledged is there, and every log is whole."""
    logs = {run: await store.events(RunId(run)) for run in {ack[0] for ack in acks if ack[0] != "message"}}
    for ack in acks:
        if ack[0] == "message":
            assert len(await store.inbox(RunId(ack[1]))) >= int(ack[2])
        else:
            assert logs[ack[0]][int(ack[1]) - 1].nonce == ack[2]
    for run, log in logs.items():
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert len(log) % 2 == 0, "half a commit"
        record = await store.run(RunId(run))
        assert record is not None and record.document.head_seq == len(log)


def test_what_was_answered_before_a_kill_is_there(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    for round_number in range(4):
        process = start(COMMITTER, path, f"round{round_number}")
        acks = acknowledged(process, 100 + 37 * round_number)
        process.kill()
        acks += acknowledged(process)
        process.wait()
        assert len(acks) >= 100

        async def main(name: str, acks: list[list[str]]) -> None:
            store = await SqliteStore.open(path, clock=SystemClock())
            await check(store, acks)
            harness = StoreHarness(Sqlite(), tmp_path)
            survivor = await harness.reader_of(store, f"{name}-0")
            await survivor.append(store, claimed("survivor"))
            await store.close()

        asyncio.run(main(f"round{round_number}", acks))


def test_several_processes_commit_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    processes = [start(COMMITTER, path, f"p{number}", 60) for number in range(3)]
    acks = [acknowledged(process) for process in processes]
    assert [process.wait() for process in processes] == [0, 0, 0]

    async def main() -> None:
        store = await SqliteStore.open(path, clock=SystemClock())
        for some in acks:
            assert len(some) == 60 + 20 * 4 + 15
            await check(store, some)
        await store.close()

    asyncio.run(main())


def test_a_lock_dies_with_the_process_that_held_it(tmp_path: Path) -> None:
    async def main() -> None:
        harness = StoreHarness(Sqlite(), tmp_path)
        store = await harness.open()
        await harness.author("before").create(store)
        process = start("-c", HOLD_LOCK, tmp_path / "runs.db")
        assert acknowledged(process, 1) == [["locked"]]
        waiting = asyncio.create_task(committed(store, harness.author("after").first()))
        assert await store.run(RunId("before")) is not None
        assert not waiting.done()
        process.kill()
        process.wait()
        assert await waiting == Committed(1)
        assert await store.run(RunId("before")) is not None
        await harness.close()

    asyncio.run(main())


def test_a_process_that_keeps_the_lock_makes_the_store_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "BUSY_TIMEOUT_S", 0.05)

    async def main() -> None:
        harness = StoreHarness(Sqlite(), tmp_path)
        store = await harness.open()
        process = start("-c", HOLD_LOCK, tmp_path / "runs.db")
        acknowledged(process, 1)
        with pytest.raises(Unavailable, match=r"runs\.db is locked by another process"):
            await harness.author("run-1").create(store)
        assert await store.events(RunId("run-1")) == []
        process.kill()
        process.wait()
        await harness.author("run-1").create(store)
        await harness.close()

    asyncio.run(main())


def test_a_change_of_another_user_s_file_is_refused_with_advice() -> None:
    with tempfile.TemporaryDirectory(prefix="buoy-test-") as name:
        place = Path(name)

        async def main() -> None:
            await (await SqliteStore.open(place / "runs.db", clock=SystemClock())).close()

        asyncio.run(main())
        (place / "runs.db").chmod(0o444)
        place.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", OPEN_AS_NOBODY, str(place / "runs.db")],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        place.chmod(0o755)
        assert "write permission" in done.stdout or "permissions" in done.stdout, done
