"""Commands on stores where 10,000 processes ran before: counted in statements and requests, never in time."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import buoy as library
from buoy.cli.main import main
from buoy.core.ids import RunnerId
from buoy.core.limits import RUNNERS_GONE_KEPT, RUNNERS_RETIRED_MAX
from buoy.core.times import StoreTime
from buoy.engine.services.heartbeat import Heartbeat
from buoy.host.ids import SystemIds
from buoy.operations.targets.workflow_files import find_workflow
from buoy.ports.records import Beat, RunnerInfo, RunnerRecord
from buoy.stores.objects.buckets.folder import FolderBucket
from buoy.stores.objects.records import RunnerObject
from buoy.stores.objects.runners import keys as runner_keys
from buoy.stores.sqlite import schema
from buoy.wiring.local_worker import runner_info

from .conftest import FLOWS

encode = msgspec.json.encode
FEW, MANY = 2_000, 10_000
LOOKS = (("ps",), ("ps", "--all"), ("status",), ("why", "--all"), ("doctor",))
# A statement's work, in steps of SQLite's machine.
STEPS = 1_000
RUNS = 3
# A busy machine draws a sweep out, and a sweep looks now and then at what its own process does.
SLACK = {"statements": 100, "requests": 100, "steps": 100 * STEPS}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Statements and their work on SQLite; calls of the bucket on a folder."""
    found = Counter[str]()

    class Counting(schema.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.set_trace_callback(lambda _: found.update(statements=1))
            self.set_progress_handler(lambda: found.update(steps=STEPS), STEPS)

    monkeypatch.setattr(schema, "Connection", Counting)
    for name in ("create", "replace", "put", "get", "get_unless", "list", "list_etags", "delete"):
        _count(monkeypatch, name, found)
    # A sweep that lasts long because the machine is busy would also send heartbeats.
    assert Heartbeat.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Heartbeat.__init__.__kwdefaults__, "beat_s", 3600.0)
    return found


def _count(monkeypatch: pytest.MonkeyPatch, name: str, found: Counter[str]) -> None:
    whole = getattr(FolderBucket, name)

    async def counted(self: FolderBucket, *args: Any, **kwargs: Any) -> Any:
        found["requests"] += 1
        return await whole(self, *args, **kwargs)

    monkeypatch.setattr(FolderBucket, name, counted)


def buoy(url: str, *words: str) -> str:
    done = CliRunner().invoke(main, [*words, "--store", url])
    assert done.exit_code in (0, 1), f"{words}: {done.output} {done.exception!r}"
    return done.output


class Place:
    """A store of one kind, and the runners that are planted in it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.kind = kind
        self.url = f"sqlite:///{folder / 'runs.db'}" if kind == "sqlite" else f"file://{folder}"

    async def runs(self) -> None:
        async with library.connect(self.url) as client:
            for number in range(RUNS):
                await client.start_as(f"run-{number}", find_workflow(f"{FLOWS}:signalled"))

    async def plant(self, number: int, *, gone: bool) -> None:
        """Runners that went in good order, or that were killed and that no sweep has met yet."""
        now = time.time()
        mine = runner_info(SystemIds(), "worker", queues=("default",))
        records = [self._record(mine, each, now, gone=gone) for each in range(number)]
        if self.kind == "sqlite":
            self._rows(records)
        else:
            await self._objects(records)

    def _record(self, mine: RunnerInfo, number: int, now: float, *, gone: bool) -> RunnerRecord:
        # A process of an earlier boot: it is dead by proof.
        name = RunnerId(f"runner-{number:06}")
        info = msgspec.structs.replace(mine, id=name, nonce=name, boot_id="an earlier boot", pid=2, process_started="1")
        at = StoreTime(now - MANY + number)
        return RunnerRecord(
            info, at, at, Beat(number=1), gone_at=at if gone else None, gone_why="stopped" if gone else None
        )

    def _rows(self, records: list[RunnerRecord]) -> None:
        rows = [
            (each.info.id, encode(each.info), each.registered_at, each.beat_at, encode(each.beat), each.gone_at,
             each.gone_why)
            for each in records
        ]  # fmt: skip
        with sqlite3.connect(self.folder / "runs.db") as connection:
            columns = "runner_id, info, registered_at, beat_at, beat, gone_at, gone_why"
            connection.executemany(f"INSERT INTO runners ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.close()

    async def _objects(self, records: list[RunnerRecord]) -> None:
        bucket = await FolderBucket.open(self.folder, durable=False)
        for each in records:
            name = each.info.id
            record = encode(RunnerObject(1, each))
            if each.gone_at is None:
                await bucket.create(runner_keys.living_key(name), record)
            else:
                await bucket.create(runner_keys.runner_key(name), record)
                await bucket.create(runner_keys.gone_key(name, float(each.gone_at)), b"{}")
        await bucket.close()


def costs(kind: str, folder: Path, counts: Counter[str], number: int, *, gone: bool) -> dict[str, Counter[str]]:
    """What each command costs where so many processes ran before; at last a sweep, and a look after it."""
    folder.mkdir()
    place = Place(kind, folder)
    asyncio.run(place.runs())
    asyncio.run(place.plant(number, gone=gone))
    found: dict[str, Counter[str]] = {}
    for words in (*LOOKS, ("sweeper", "--once"), ("ps",)):
        counts.clear()
        buoy(place.url, *words)
        found[" ".join(words) + (" after" if " ".join(words) in found else "")] = counts.copy()
    return found


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_commands_cost_the_same_however_many_processes_ended_before(
    tmp_path: Path, kind: str, counts: Counter[str]
) -> None:
    few, many = (costs(kind, tmp_path / f"{number}", counts, number, gone=True) for number in (FEW, MANY))
    # SQLite's own check of the file reads all of it.
    few["doctor"]["steps"] = many["doctor"]["steps"] = 0
    # A look at each of the others would cost thousands more.
    assert few.keys() == many.keys()
    for name, found in many.items():
        assert all(abs(found[each] - few[name][each]) <= SLACK[each] for each in found), (name, few[name], found)
    unit = "statements" if kind == "sqlite" else "requests"
    assert max(found[unit] for name, found in many.items() if name not in ("doctor", "sweeper --once")) <= 100
    assert many["doctor"][unit] <= 4 * RUNNERS_GONE_KEPT
    assert many["sweeper --once"][unit] <= 5 * RUNNERS_RETIRED_MAX


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_commands_look_at_each_killed_process_once_and_after_a_sweep_no_more(
    tmp_path: Path, kind: str, counts: Counter[str]
) -> None:
    """A sweep buries each by a few statements or requests, whatever the number of the others."""
    unit, few, many = "statements" if kind == "sqlite" else "requests", 100, 600
    least, most = (costs(kind, tmp_path / f"{number}", counts, number, gone=False) for number in (few, many))
    grown = {name: (most[name][unit] - least[name][unit]) / (many - few) for name in least}
    assert all(grown[" ".join(words)] <= (0 if kind == "sqlite" else 1) for words in LOOKS if words != ("doctor",))
    assert grown["doctor"] <= (0 if kind == "sqlite" else 5)
    assert grown["sweeper --once"] <= (8 if kind == "sqlite" else 9)
    assert least["ps after"] == most["ps after"]
    # Each row is read so many times in all: no look goes through all runners for each of them.
    assert most["sweeper --once"]["steps"] <= 8 * least["sweeper --once"]["steps"]
