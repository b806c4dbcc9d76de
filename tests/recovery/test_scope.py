"""Whose runs the library looks at, if nothing else is said: those of the client's own stack and env."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

import buoy
from buoy.recovery.reconcile import reconcile
from buoy.recovery.scan import ScanOptions, scan
from buoy.recovery.scope import Scope
from buoy.recovery.sweep import SweepOptions, sweep


@buoy.workflow
async def waits() -> object:
    return await buoy.wait_signal("go")


async def _asleep(url: str, database: Path, name: str) -> None:
    """A run that has its signal, and whose wake-up was lost."""
    async with buoy.open(url, workflows=[waits]) as app:
        run = await app.start_as(name, waits)
        while not (await app.state(run.id)).open:
            await app.store.changed(0.05)
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
