"""Real processes on a store that loses every tenth answer: each request has one effect, and no body runs twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.state import fold
from buoy.engine.read_log import read_log
from buoy.operations.control.schedules import remove_schedule
from tests.patience import PATIENCE_S, until

from .lossy_process import PLAIN, SCHEDULE

HERE = Path(__file__).resolve().parents[2]
CLIENTS = ("ann", "ben")


def process(role: str, url: str, seed: int, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.recovery.lossy_process", role, url, str(seed), *words],
        cwd=HERE, stdout=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def workers(url: str, place: Path, count: int = 2) -> Iterator[list[subprocess.Popen[bytes]]]:
    """They run until the block ends, and are stopped in good order."""
    started = [process("worker", url, seed, str(place)) for seed in range(count)]
    try:
        yield started
        for each in started:
            each.terminate()
        for each in started:
            each.wait(PATIENCE_S)
    finally:
        for each in started:
            if each.poll() is None:
                each.kill()
                each.wait()


def clients(url: str, place: Path) -> list[dict[str, Any]]:
    """What each of them asked for, at the same time as the other."""
    started = [process("client", url, 10 + number, str(place), name) for number, name in enumerate(CLIENTS)]
    try:
        told = [each.communicate(timeout=PATIENCE_S)[0] for each in started]
    finally:
        for each in started:
            if each.poll() is None:
                each.kill()
                each.wait()
    assert [each.returncode for each in started] == [0, 0]
    return [json.loads(each) for each in told]


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_every_request_of_several_processes_has_one_effect(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else f"file://{tmp_path / 'runs'}"
    with workers(url, tmp_path):
        told = clients(url, tmp_path)
        wanted = {run: ends for each in told for run, ends in each["wanted"].items()}
        asyncio.run(ended(url))
    assert len(wanted) == 2 * 6 + 1, "each start made a run of its own, and both knew the shared one"
    assert all(each["lost"] > 5 for each in told)
    asyncio.run(check(url, wanted))
    witness = (tmp_path / "witness").read_text().split()
    assert len(witness) == len(set(witness)), "no body was executed twice"


async def ended(url: str) -> None:
    """All that was asked for, and what the schedule has started by then."""
    async with buoy.connect(url) as client:
        await remove_schedule(client, SCHEDULE)

        async def over() -> bool:
            return all(each.document.ended for each in (await client.runs(limit=1000)).runs)

        await until(over, "all runs to end")


async def check(url: str, wanted: dict[str, dict[str, Any]]) -> None:
    """Each run is there once, with exactly the effects that were asked for, and its log is sound."""
    async with buoy.connect(url) as client:
        found = {each.document.run_id: each.document for each in (await client.runs(limit=1000)).runs}
        own = {run for run, each in found.items() if each.parent is None and each.workflow != "tick"}
        assert own == set(wanted)
        assert sum(each.workflow == "child" for each in found.values()) == 2 * len(CLIENTS)
        assert any(each.workflow == "tick" for each in found.values())
        for run_id, document in found.items():
            log = await read_log(client.store, RunId(run_id))
            assert fold(RunId(run_id), log).anomalies == []
            ends = wanted.get(run_id, PLAIN)
            assert document.status == ends["status"]
            assert sum(isinstance(each.body, e.BranchCreated) for each in log) == ends["branches"], run_id
            assert sum(isinstance(each.body, e.VersionBound) for each in log) == ends["bound"], run_id
            if "result" in ends and ends["status"] == "completed":
                assert await (await client.get(run_id)).result() == ends["result"]
            sent = [each.kind for each in await client.store.inbox(RunId(run_id))]
            assert sent.count("signal") == (document.workflow == "order" and ends["status"] == "completed"), run_id
            assert sent.count("answer") == (document.workflow == "asks")
