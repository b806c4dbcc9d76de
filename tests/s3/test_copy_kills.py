"""`buoy copy` between all kinds of stores, killed again and again, and in two processes at once.

Each kill is a true SIGKILL at one of the writes of the command (`tests/recovery/killed_copy.py`). The next copy begins
where the last one was killed. `BUOY_CUTS_ALL=1` tries every pair of kinds, and more kills for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import permutations
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.host.clock import SystemClock
from buoy.stores.objects.buckets.folder import FolderBucket
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address
from buoy.stores.sqlite.store import SqliteStore
from buoy.wiring.server import ServedStore
from tests.patience import PATIENCE_S
from tests.postgres_server import fresh_url
from tests.recovery.test_copying import WITNESS, ends_at
from tests.recovery.test_copying_cuts import NAMES, Objects, all_moved, objects_of, plant
from tests.web.live_server import TOKEN, LiveServer

from .seaweed import Seaweed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = ("sqlite", "s3", "postgres", "folder", "http")
EVERY = "BUOY_CUTS_ALL" in os.environ
# Each kind is a source once, and a target once.
PAIRS = list(permutations(KINDS, 2)) if EVERY else list(zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True))
# At which of its writes a copy is killed, one copy after the other. A later one has fewer writes left to do.
KILLS = tuple(range(1, 25)) if EVERY else (2, 3, 5, 7, 9)
COPY = [sys.executable, "-m", "buoy", "copy", "--all"]


class Stores:
    """Makes the stores of one test. `planted`: one with runs; else an empty one."""

    def __init__(self, folder: Path, server: Seaweed, template: Path) -> None:
        self._folder, self._server, self._template = folder, server, template
        self._servers: list[LiveServer] = []

    async def make(self, kind: str, name: str, *, planted: bool = False) -> str:
        place = self._folder / name
        place.mkdir()
        if planted and kind in ("sqlite", "http"):
            shutil.copytree(self._template / "sqlite", place, dirs_exist_ok=True)
        database = place / "runs.db"
        if kind == "sqlite":
            return f"sqlite:///{database}"
        if kind == "http":
            return self._serve(database)
        if kind == "postgres":
            url = fresh_url()
            if planted:
                await plant(url, place)
            return url
        url = f"file://{place}/store" if kind == "folder" else self._server.url(f"copies-{self._folder.name}-{name}")
        if planted:
            await self._put(kind, place, url)
        async with buoy.connect(url):  # the probe of a bucket is no part of a copy
            return url

    async def _put(self, kind: str, place: Path, url: str) -> None:
        objects: Objects = await objects_of(self._template / "source")
        bucket: FolderBucket | S3Bucket
        if kind == "folder":
            bucket = await FolderBucket.open(place / "store", durable=False)
        else:
            bucket = await S3Bucket.open(parse_address(url))
        try:
            await asyncio.gather(*(bucket.put(key, body) for key, body in objects.items()))
        finally:
            await bucket.close()

    def _serve(self, database: Path) -> str:
        async def opened() -> ServedStore:
            clock = SystemClock()
            return ServedStore(await SqliteStore.open(database, clock=clock, own_clock=clock), clock)

        self._servers.append(LiveServer(opened))
        return self._servers[-1].url

    def close(self) -> None:
        for each in self._servers:
            each.stop()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file and a folder that real runs filled."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "sqlite").mkdir()

    async def play() -> None:
        await plant(f"sqlite:///{folder}/sqlite/runs.db", folder)
        await plant(f"file://{folder}/source", folder)

    asyncio.run(play())
    return folder


@pytest.fixture
def stores(tmp_path: Path, server: Seaweed, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    monkeypatch.setenv("BUOY_TOKEN", TOKEN)
    made = Stores(tmp_path, server, template)
    yield made
    made.close()


class Copier:
    """`buoy copy --all` in processes of their own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.recovery.killed_copy"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def copy(self, number: int, phase: str, source: str, target: str) -> tuple[int, str]:
        """The return code of the command, and what it said. It is killed at its write of that number; 0: at none."""
        assert self._process.stdin is not None and self._process.stdout is not None
        command = [number, phase, "copy", "--all", "--from", source, "--to", target]
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        code, said = json.loads(self._process.stdout.readline())
        return code, said

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)


@pytest.fixture
def copier(stores: Stores) -> Iterator[Copier]:
    """After the environment is set."""
    made = Copier()
    yield made
    made.close()


def _on(source: str, target: str, work: Callable[[buoy.Client, buoy.Client], Awaitable[None]]) -> None:
    async def play() -> None:
        async with buoy.connect(source) as here, buoy.connect(target) as there:
            await work(here, there)

    asyncio.run(play())


async def nowhere_twice(here: buoy.Client, there: buoy.Client) -> None:
    """A run that may execute in the target is over in the source."""
    for name in NAMES:
        copy = await there.store.run(RunId(name))
        if copy is not None:
            left = (await here.record(name)).document
            assert left.status == "moved" and left.moved_to == there.store.name, (name, left.status)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-to-".join(pair) for pair in PAIRS])
def test_a_copy_that_gets_sigkill_again_and_again_is_completed(
    stores: Stores, copier: Copier, source: str, target: str
) -> None:
    here = asyncio.run(stores.make(source, "here", planted=True))
    there = asyncio.run(stores.make(target, "there"))
    killed = 0
    for turn, number in enumerate(KILLS):
        code, said = copier.copy(number, ("before", "after")[turn % 2], here, there)
        assert code in (0, -signal.SIGKILL), said
        _on(here, there, nowhere_twice)
        if code == 0:
            break
        killed += 1
    assert killed >= 3
    code, said = copier.copy(0, "", here, there)
    assert code == 0, said
    _on(here, there, all_moved)
    WITNESS.clear()
    asyncio.run(ends_at(there))
    assert WITNESS == [], "the step was done before the copy"


def test_of_two_copies_at_once_in_two_processes_one_wins_each_run(stores: Stores) -> None:
    here = asyncio.run(stores.make("s3", "here", planted=True))
    targets = [asyncio.run(stores.make(kind, kind)) for kind in ("sqlite", "postgres")]
    copies = [
        subprocess.Popen(
            [*COPY, "--from", here, "--to", each], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for each in targets
    ]
    said = [each.communicate(timeout=PATIENCE_S)[0].decode() for each in copies]
    for each, text in zip(copies, said, strict=True):
        assert each.returncode == 0 or (each.returncode == 2 and ("has moved to" in text or "copy again" in text)), text

    async def play() -> None:
        async with buoy.connect(here) as source:
            clients = {}
            for each in targets:
                async with buoy.connect(each) as client:
                    clients[client.store.name] = {name: await client.store.run(RunId(name)) for name in NAMES}
            for name in NAMES:
                went = (await source.record(name)).document.moved_to
                assert went is not None, said
                found = [target for target, runs in clients.items() if runs[name] is not None]
                assert found == [went], (name, said)

    asyncio.run(play())
