"""A real replica: what the doctor says of it, and what a fail-over to it keeps."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import buoy
from buoy import NotWritten
from buoy.core.ids import RunId
from buoy.host.clock import SystemClock
from buoy.recovery.evidence import store_trouble
from buoy.stores.postgres import silence
from buoy.stores.postgres.store import PostgresStore
from tests.patience import PATIENCE_S, wait_until
from tests.postgres_server import Server, fresh_schema, query, start_replica, start_server
from tests.stores.test_postgres import doubled

pytestmark = pytest.mark.slow
# The replica's name at its primary.
SPARE = "spare"


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    primary = start_server(18)
    replica = start_replica(primary, SPARE)
    yield primary, replica
    for each in (replica, primary):
        if (each.folder / "data" / "postmaster.pid").exists():
            each.stop()


def completed(url: str, run_id: str) -> None:
    async def main() -> None:
        async with buoy.open(url, workflows=[doubled]) as app:
            assert await (await app.start_as(run_id, doubled, 1)).result() == 8

    asyncio.run(main())


def checked(url: str, name: str) -> str:
    """What the doctor says under that name."""

    async def main() -> str:
        store = await PostgresStore.open(url, clock=SystemClock())
        try:
            return {each.name: each.text for each in await store.integrity.checks()}[name]
        finally:
            await store.close()

    return asyncio.run(main())


def _refused(url: str) -> str:
    """Why the store takes no data now, in words."""

    async def main() -> str:
        async with buoy.connect(url) as client:
            return str(await store_trouble(client.store))

    return asyncio.run(main())


def steps_of(url: str, run_id: str) -> int:
    async def main() -> int:
        async with buoy.connect(url) as client:
            return sum(event.type == "step_completed" for event in await client.store.events(RunId(run_id)))

    return asyncio.run(main())


def test_a_fail_over_to_a_synchronous_replica_loses_nothing_and_the_doctor_tells_the_kinds_apart(
    pair: tuple[Server, Server],
) -> None:
    primary, replica = pair
    name = fresh_schema()
    url, spare = primary.url(name), replica.url(name)
    completed(url, "before")
    wait_until(lambda: query(url, "SELECT state FROM pg_stat_replication") == [("streaming",)], "the replica")
    said = checked(url, "replicas")
    assert said.startswith(f"asynchronous: {SPARE} (")
    assert "set synchronous_standby_names" in said
    wait_until(lambda: query(spare, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", (name,)) == [(1,)])
    assert checked(spare, "access").startswith("a standby, which only reads")
    assert "its server only reads: it is a standby" in _refused(spare)
    with pytest.raises(NotWritten, match="only reads now"):
        completed(spare, "refused")

    query(url, f"ALTER SYSTEM SET synchronous_standby_names = '{SPARE}'")
    query(url, "SELECT pg_reload_conf()")
    wait_until(lambda: query(url, "SELECT sync_state FROM pg_stat_replication") == [("sync",)], "a synchronous replica")
    assert checked(url, "replicas") == f"all synchronous: {SPARE}"
    completed(url, "after")

    primary.stop()
    replica.control("promote")
    assert [steps_of(spare, run_id) for run_id in ("before", "after")] == [3, 3]
    completed(f"{url.replace(f'host={primary.folder}', f'host={primary.folder},{replica.folder}')}", "moved")
    assert steps_of(spare, "moved") == 3


def test_commits_that_wait_for_a_missing_replica_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 0.2)
    primary = start_server(18)
    try:
        url = primary.url(fresh_schema())
        completed(url, "before")
        assert checked(url, "replicas") == "no replicas"
        query(url, "ALTER SYSTEM SET synchronous_standby_names = 'missing'")
        query(url, "SELECT pg_reload_conf()")
        wait_until(lambda: checked(url, "replicas").startswith("every commit waits: "), "the setting")
        waiting = threading.Thread(target=completed, args=(url, "waits"))
        waiting.start()
        wait_until(lambda: "this process waits for it; `buoy doctor` may know why" in caplog.text, "the warning")
        query(url, "ALTER SYSTEM RESET synchronous_standby_names")
        query(url, "SELECT pg_reload_conf()")
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()
        assert caplog.records[-1].getMessage().endswith("answers again")
        assert steps_of(url, "waits") == 3
    finally:
        primary.stop()


FLOW = """import buoy

@buoy.workflow
async def waits() -> None:
    await buoy.wait_signal("go")
"""
HELD_UP = "its server waits for a synchronous replica, and none is connected"


@pytest.fixture
def without_replica(tmp_path: Path) -> Iterator[str]:
    """A store whose server demands a replica that is not there, with one run. No commit returns."""
    (tmp_path / "flows.py").write_text(FLOW)
    primary = start_server(18)
    try:
        url = primary.url(fresh_schema())
        assert _buoy(url, tmp_path, "start", "flows.py:waits", "--id", "r").returncode == 0
        query(url, "ALTER SYSTEM SET synchronous_standby_names = 'missing'")
        query(url, "SELECT pg_reload_conf()")
        wait_until(lambda: query(url, "SHOW synchronous_standby_names") == [("missing",)], "the setting")
        yield url
    finally:
        primary.stop()


def _words(*words: str) -> list[str]:
    return [sys.executable, "-m", "buoy", *words]


def _buoy(url: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "BUOY_STORE": url}
    return subprocess.run(_words(*words), cwd=folder, env=given, capture_output=True, text=True, timeout=PATIENCE_S)


def test_each_look_at_a_store_says_that_its_server_waits_for_a_replica(without_replica: str, tmp_path: Path) -> None:
    for words in (["status"], ["why", "r"], ["why", "--all"]):
        found = _buoy(without_replica, tmp_path, *words)
        assert HELD_UP in " ".join(found.stdout.split()), words
        assert "synchronous_standby_names is 'missing'" in " ".join(found.stdout.split()), words
        assert found.returncode == (0 if words == ["why", "r"] else 1)
    said = _buoy(without_replica, tmp_path, "doctor").stdout
    assert "every commit waits" in said
    assert "1 trouble left, 0 repaired; what to do stands in each line" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "code"),
    [(["run", "flows.py:waits", "--id", "s"], 5), (["worker", "flows.py"], 0), (["start", "flows.py:waits"], 130)],
    ids=["run", "worker", "start"],
)
def test_ctrl_c_ends_a_command_whose_server_waits_for_a_replica(
    without_replica: str, tmp_path: Path, words: list[str], code: int
) -> None:
    process = subprocess.Popen(
        _words(*words),
        cwd=tmp_path,
        env={**os.environ, "BUOY_STORE": without_replica},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # As a terminal starts it. A suite that runs in the background may pass on that Ctrl-C is to be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        held_up = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_until(lambda: query(without_replica, held_up) != [(0,)], "a commit that waits")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, said
        assert "Traceback" not in said
    finally:
        process.kill()
        process.wait()
