"""Traced stores: every call of every role is noted, and nothing else about a store changes."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

import buoy
from buoy.ports.host import Clock
from buoy.ports.maintenance import PARTS, CountsRequests
from buoy.ports.store import Store
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.store import ObjectStore
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts import StoreContract
from buoy.wiring.store_tracing import ROLES, StoreCall, calls_of, traced
from tests.patience import PATIENCE_S

DATA: dict[Path, MemoryData] = {}
CALLS = [("", role, name) for role in (*ROLES, Store) for name in calls_of(role)] + [
    (part, role, name) for part, role in PARTS.items() for name in calls_of(role)
]


def deaf(call: StoreCall) -> None:
    """Hears everything and keeps nothing."""


class TestTracedStore(StoreContract):
    """The contract through the wrapper, so that each call gives what it gave."""

    async def open(self, place: Path, clock: Clock) -> Store:
        data = DATA.setdefault(place, MemoryData())
        return traced(ObjectStore(MemoryBucket(data), clock), clock, deaf)


def test_the_roles_are_all_that_a_store_has() -> None:
    assert {*ROLES, Protocol} == set(Store.__bases__)
    every = {name for name, _ in inspect.getmembers(Store, inspect.iscoroutinefunction)}
    assert {name for part, _, name in CALLS if not part} == every
    assert len(CALLS) > 35


@pytest.mark.parametrize(("part", "role", "name"), CALLS, ids=[f"{role.__name__}.{name}" for _, role, name in CALLS])
def test_no_call_is_forgotten(part: str, role: type, name: str, tmp_path: Path) -> None:
    heard: list[StoreCall] = []

    async def body() -> None:
        whole = traced(await SqliteStore.open(tmp_path / "runs.db", clock=ManualClock()), ManualClock(), heard.append)
        call: Any = getattr(getattr(whole, part) if part else whole, name)
        with pytest.raises(TypeError):
            await call(there_is_no_such_argument=1)
        assert [(each.role, each.call, each.error) for each in heard] == [(role.__name__, name, "TypeError")]
        await whole.close()

    asyncio.run(body())


def test_without_a_listener_a_store_is_itself(tmp_path: Path) -> None:
    async def body() -> None:
        store = await SqliteStore.open(tmp_path / "runs.db", clock=ManualClock())
        assert traced(store, ManualClock(), None) is store
        await store.close()

    asyncio.run(body())


def test_another_connection_is_traced_too(tmp_path: Path) -> None:
    heard: list[StoreCall] = []

    async def body() -> None:
        clock = ManualClock()
        first = traced(await SqliteStore.open(tmp_path / "runs.db", clock=clock), clock, heard.append)
        second = await first.reopen()
        await second.runners()
        await second.close()
        await first.close()

    asyncio.run(body())
    assert [each.call for each in heard] == ["reopen", "runners", "close", "close"]


def test_a_bucket_still_counts_its_requests() -> None:
    bucket = ObjectStore(MemoryBucket(MemoryData()), ManualClock())
    found = traced(bucket, ManualClock(), deaf)
    assert isinstance(found, CountsRequests)
    assert found.requests == bucket.requests


def test_a_listener_that_fails_is_dropped_and_the_call_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    def full(call: StoreCall) -> None:
        raise OSError("no space left on device")

    async def body() -> None:
        store = traced(ObjectStore(MemoryBucket(MemoryData()), ManualClock()), ManualClock(), full)
        assert await store.runners() == await store.runners() == []

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())
    assert [each.getMessage() for each in caplog.records] == [
        "the trace of the store ends here: no space left on device"
    ]


@buoy.step
async def greet() -> str:
    return "hello"


@buoy.workflow
async def greeting() -> str:
    return await greet()


def test_the_environment_asks_for_a_trace_of_all_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUOY_TRACE", str(tmp_path / "trace.jsonl"))

    async def body() -> None:
        async with buoy.open(f"sqlite:///{tmp_path}/runs.db", workflows=[greeting]) as app:
            assert await (await app.start(greeting)).result() == "hello"

    asyncio.run(body())
    trace = tmp_path / "trace.jsonl"
    lines = [json.loads(each) for each in trace.read_text().splitlines()]
    commits = [each for each in lines if each["call"] == "commit"]
    assert len(commits) >= 2
    assert all(each["role"] == "RunLog" and each["took_s"] >= 0 for each in commits)
    assert {"RunLog", "TaskQueue", "RunnerRegistry", "Store"} <= {each["role"] for each in lines}
    assert trace.stat().st_mode & 0o777 == 0o600


def test_a_trace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    env = {**os.environ, "BUOY_TRACE": str(tmp_path / "none" / "trace.jsonl")}
    words = [sys.executable, "-m", "buoy", "start", "flows.py:greeting", "--store", f"sqlite:///{tmp_path}/runs.db"]
    (tmp_path / "flows.py").write_text("import buoy\n\n@buoy.workflow\nasync def greeting() -> str:\n    return ''\n")
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2, done
    assert "(BUOY_TRACE) cannot be written" in done.stderr
