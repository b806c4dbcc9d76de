"""Two nodes on one folder, as real processes: a frozen one is declared dead, wakes up and does no harm."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.client.client import Client
from buoy.ports.records import Evidence, RunnerRecord
from buoy.recovery.failure_detector import SILENT, FailureDetector
from tests.freeze import freeze
from tests.patience import LOOK_S, PATIENCE_S, wait_until

FLOW = """
import os, pathlib, time
import buoy

@buoy.step
def work(place: str) -> str:
    with open(place, "a") as out:
        out.write(f"{os.environ['BUOY_HOST']}\\n")
    gate = pathlib.Path(place + ".open")
    while os.environ["BUOY_HOST"] == "node-a" and not gate.exists():
        time.sleep(0.02)
    return os.environ["BUOY_HOST"]

@buoy.workflow
def job(place: str) -> str:
    return work(place)
"""


@contextmanager
def node(name: str, folder: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that counts as a machine of its own."""
    with (folder / f"{name}.log").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "buoy", "worker", "flow.py", "--store", url],
            cwd=folder,
            env={**os.environ, "BUOY_HOST": name},
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


async def _runner_of(client: Client, host: str) -> RunnerRecord:
    (record,) = [each for each in await client.store.runners() if each.info.host == host]
    return record


async def _declare_dead(url: str) -> Evidence:
    """From a third machine, which has less patience than a real one."""
    async with buoy.connect(url) as client:
        record = await _runner_of(client, "node-a")
        assert (await client.liveness.look([record]))[record.info.id].proof is None, (
            "a lock of another host proves nothing"
        )
        detector = FailureDetector(
            client.store, client.liveness, client.clock, suspect_after_s=0.4, apart_s=0.3, slack_s=5.0
        )
        async with asyncio.timeout(PATIENCE_S):
            while (proof := await detector.proof(await _runner_of(client, "node-a"))) is None:
                await asyncio.sleep(LOOK_S)
        assert await detector.declare_dead(await _runner_of(client, "node-a"), proof) == 1
        return proof


def _log(url: str, run_id: str) -> list[e.Event]:
    async def read() -> list[e.Event]:
        async with buoy.connect(url) as client:
            return await client.store.events(RunId(run_id))

    return asyncio.run(read())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_a_frozen_node_is_declared_dead_and_does_no_harm_when_it_wakes(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUOY_HOST", "node-c")
    url = f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else f"file://{tmp_path / 'runs'}"
    (tmp_path / "flow.py").write_text(FLOW)
    place = tmp_path / "executed"
    start = [sys.executable, "-m", "buoy", "start", "flow.py:job", "--arg", f"place={place}", "--id", "j1"]
    subprocess.run([*start, "--store", url], cwd=tmp_path, check=True, capture_output=True)
    with node("node-a", tmp_path, url) as frozen:
        wait_until(lambda: place.exists() and place.read_text() == "node-a\n")
        freeze(frozen.pid, url)
        proof = asyncio.run(_declare_dead(url))
        assert (proof["proof"], proof["host"]) == (SILENT, "node-a")
        with node("node-b", tmp_path, url):
            wait_until(lambda: _log(url, "j1")[-1].type == "workflow_completed")
            ended = _log(url, "j1")
            Path(f"{place}.open").touch()
            frozen.send_signal(signal.SIGCONT)
            wait_until(lambda: frozen.poll() is not None)
    assert place.read_text() == "node-a\nnode-b\n"
    assert _log(url, "j1") == ended, "what the frozen one still wrote counts for nothing"
    claims = [event.body for event in ended if isinstance(event.body, e.Claimed)]
    assert claims[-1].cause == "taken_over" and claims[-1].evidence["proof"] == SILENT
    assert isinstance(ended[-1].body, e.WorkflowCompleted) and bytes(ended[-1].body.result) == b'"node-b"'
