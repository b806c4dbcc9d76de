"""Whose runs the library looks at, if nothing else is said: those of the client's own stack and env."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import RunnerId
from buoy.operations.control.resume import lost_runs
from buoy.ports.records import Held
from buoy.recovery.sweep.reconcile import reconcile
from buoy.recovery.sweep.scan import ScanOptions, scan
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from tests.core.logbook import claimed, started

from .harness import KINDS, RecoveryHarness, created
from .harness import play as yard_play


@buoy.workflow
async def waits() -> object:
    return await buoy.wait_signal("go")


async def _asleep(url: str, database: Path, name: str) -> None:
    """A run that has its signal, and whose wake-up was lost."""
    async with buoy.open(url, workflows=[waits]) as app:
        run = await app.start_as(name, waits)
        while not (await app.state(run.id)).open:
            await app.store.wait_for_change(0.05)
    async with buoy.connect(url) as client:
        await client.signal(name, "go")
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE tasks SET due_at = NULL WHERE run_id = ?", (name,))


def test_sweep_scan_and_reconcile_keep_to_the_env_of_their_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "runs.db"
    url = f"sqlite:///{database}"
    now, look = SweepOptions(stale_after_s=0.0), ScanOptions(stale_after_s=0.0)

    async def play() -> None:
        for env, name in (("", "default-run"), ("e1", "e1-run")):
            monkeypatch.setenv("BUOY_ENV", env)
            await _asleep(url, database, name)
        async with buoy.connect(url) as client:
            assert [each.run_id for each in (await scan(client, look)).found] == ["e1-run"]
            assert (await reconcile(client)).replayed == 1
            assert (await sweep(client, now)).resumed == 0, "the other one is none of ours"
            everywhere = ScanOptions(stale_after_s=0.0, scope=Scope(env=None))
            assert [each.run_id for each in (await scan(client, everywhere)).found] == ["default-run"]
        monkeypatch.setenv("BUOY_ENV", "")
        async with buoy.connect(url) as client:
            assert (await sweep(client, now)).resumed == 1

    asyncio.run(play())


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_of_one_env_touches_no_run_of_another(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        ours = await harness.runner("ours", dead=True, env="test")
        theirs = await harness.runner("theirs", dead=True)
        idle = await harness.runner("idle", dead=True)
        for runner, env in ((ours, "test"), (theirs, None)):
            for policy in ("resume", "fail", "restart"):
                await harness.left_by(
                    runner, f"{runner}-{policy}", created(policy, env=env), claimed("r"), started("a#1")
                )
        await harness.plant("bare", created(), task=Held(RunnerId("ghost")))
        before = [await harness.record(f"theirs-{policy}") for policy in ("resume", "fail", "restart")]
        harness.client.env = "test"
        now = SweepOptions(stale_after_s=0.0)
        assert {each.run_id for each in (await scan(harness.client, ScanOptions(stale_after_s=0.0))).found} == {
            "ours-resume", "ours-fail", "ours-restart"
        }  # fmt: skip
        found = await sweep(harness.client, now)
        assert (found.dead_runners, found.resumed, found.failed, found.restarted) == (2, 1, 1, 1)
        await reconcile(harness.client)
        assert {lost.run_id async for lost in lost_runs(harness.client)} == {"ours-resume", "ours-restart"}, "no worker"
        assert before == [await harness.record(f"theirs-{policy}") for policy in ("resume", "fail", "restart")]
        assert (await harness.record("bare")).holder == "ghost"
        # One that holds nothing is struck off by anybody; one that holds something by the sweepers of its env.
        assert [record.info.id for record in await harness.store.runners()] == [theirs]
        assert idle in {record.info.id for record in await harness.store.runners(gone=9)}
        harness.client.env = None
        found = await sweep(harness.client, now)
        assert (found.dead_runners, found.resumed, found.failed, found.restarted) == (1, 2, 1, 1)

    yard_play(tmp_path, test, kind)
