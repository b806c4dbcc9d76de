"""Purging: what ended long ago goes, all else stays, and no new run takes its id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.errors import BadInput, UnknownRun
from buoy.operations.maintenance.purge import Purge, purge
from buoy.operations.maintenance.purged_logs import remove_logs
from buoy.ports.records import Ended, Write
from buoy.stores import open_store
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import claimed

DAY_S = 86_400.0
ENDS: dict[str, e.Body] = {
    "completed": e.WorkflowCompleted(),
    "failed": e.WorkflowFailed(error=e.ErrorInfo(type="E", message="no")),
    "cancelled": e.WorkflowCancelled(reason="no"),
}


@buoy.workflow
async def order(number: int) -> int:
    return number


async def _put(client: Client, run_id: str, at: float, *bodies: e.Body, workflow: str = "order") -> None:
    created = e.WorkflowCreated(workflow=workflow, input=msgspec.Raw(b'{"number": 1}'))
    events = tuple(
        e.Event(seq, at, body, nonce=f"{run_id}{seq}") for seq, body in enumerate((created, claimed("r"), *bodies), 1)
    )
    found = document(fold(RunId(run_id), events))
    await client.store.commit([Write(RunId(run_id), 0, events, found, Ended() if found.ended else None)])


def played(test: Callable[[Client], Awaitable[None]], folder: Path, kind: str) -> None:
    async def play() -> None:
        url = f"sqlite:///{folder / 'runs'}.db" if kind == "sqlite" else f"file://{folder / 'runs'}"
        async with buoy.connect(url, actor="ann") as client:
            client.clock = ManualClock()
            await client.store.close()
            client.store = await open_store(url, client.clock)
            await test(client)

    asyncio.run(play())


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_runs_that_ended_long_ago_are_purged(tmp_path: Path, kind: str) -> None:
    async def play(client: Client) -> None:
        now = client.clock.now()
        for status, end in ENDS.items():
            await _put(client, f"old-{status}", now - 40 * DAY_S, end)
            await _put(client, f"new-{status}", now - 20 * DAY_S, end)
        await _put(client, "waits", now - 90 * DAY_S)
        await _put(client, "other", now - 90 * DAY_S, ENDS["failed"], workflow="ship")
        ask = Purge(older_than_s=30 * DAY_S, statuses=("failed", "completed"), workflow="order", dry_run=True)
        would = await purge(client, ask)
        assert (would.purged, set(would.runs)) == (2, {"old-failed", "old-completed"})
        assert len((await client.runs()).runs) == 8
        done = await purge(client, msgspec.structs.replace(ask, dry_run=False))
        assert (done.purged, done.kept, done.runs) == (2, 0, would.runs)
        done = await purge(client, Purge(older_than_s=30 * DAY_S))
        assert set(done.runs) == {"old-cancelled", "other"}
        left = {record.document.run_id for record in (await client.runs()).runs}
        assert left == {"new-completed", "new-failed", "new-cancelled", "waits"}
        assert (await purge(client, Purge(older_than_s=30 * DAY_S))).purged == 0

    played(play, tmp_path, kind)


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_a_purged_run_is_told_as_such_and_not_started_again(tmp_path: Path, kind: str) -> None:
    async def play(client: Client) -> None:
        await _put(client, "order-1", 1000.0, ENDS["completed"])
        await purge(client, Purge(older_than_s=0.0))
        told = r"run order-1 of order was purged 1970-.* by ann: it was completed since 1970-01-01 00:16:40 UTC"
        with pytest.raises(UnknownRun, match=told):
            await client.record("order-1")
        with pytest.raises(UnknownRun, match="its id is not used again"):
            await client.start_as("order-1", order, 1)
        async with buoy.open(client.store.name, workflows=[order]) as app:
            with pytest.raises(UnknownRun, match="its id is not used again"):
                await app.start_as("order-1", order, 1)
            assert await (await app.start_as("order-2", order, 2)).result() == 2
        with pytest.raises(UnknownRun, match="no run 'order-3'"):
            await client.record("order-3")

    played(play, tmp_path, kind)


def test_only_ends_can_be_asked_for(tmp_path: Path) -> None:
    async def play(client: Client) -> None:
        with pytest.raises(BadInput, match="paused"):
            await purge(client, Purge(older_than_s=0.0, statuses=("paused", "failed")))

    played(play, tmp_path, "sqlite")


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_many_pages_are_purged_in_one_go(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.operations.maintenance.purge.RUNS_PAGE_MAX", 7)

    async def play(client: Client) -> None:
        for number in range(30):
            await _put(client, f"run-{number}", 1000.0 + number, ENDS["completed"])
        assert (await purge(client, Purge(older_than_s=0.0))).purged == 30
        assert (await client.runs()).runs == ()

    played(play, tmp_path, kind)


def _logs(folder: Path, run_id: str, *names: str) -> Path:
    place = folder / run_id
    place.mkdir(parents=True)
    for name in names:
        (place / name).write_text("output")
    return place


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_the_output_of_commands_goes_with_the_purged_run_and_no_other(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "logs"

    async def play(client: Client) -> None:
        now = client.clock.now()
        await _put(client, "old", now - 40 * DAY_S, ENDS["failed"])
        await _put(client, "new", now - 20 * DAY_S, ENDS["failed"])
        gone = _logs(folder, "old", "a#1.1.log", "s.m#1.2.log", "a#1.1.result", "a#1.lock")
        stays = [_logs(folder, name, "a#1.1.log") for name in ("new", "nobody", "-no-run")]
        order_ = Purge(older_than_s=30 * DAY_S, dry_run=True)
        assert (await purge(client, order_, folder)).logs == 0
        assert gone.exists()
        done = await purge(client, msgspec.structs.replace(order_, dry_run=False), folder)
        assert (done.purged, done.logs) == (1, 1)
        assert not gone.exists()
        assert all(each.exists() for each in stays)
        # Left by a purge that was cut off.
        _logs(folder, "old", "a#1.1.log")
        assert (await purge(client, msgspec.structs.replace(order_, dry_run=False), folder)).logs == 1

    played(play, tmp_path, kind)


def test_nothing_outside_of_the_log_folder_is_ever_removed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "logs", tmp_path / "outside"
    treasure = _logs(tmp_path, "outside", "a#1.1.log") / "a#1.1.log"
    folder.mkdir()
    (folder / "linked").symlink_to(outside)
    assert not remove_logs(folder, RunId("linked"))
    for name in ("../outside", "..", "/etc", "a/b"):
        with pytest.raises(BadInput):
            remove_logs(folder, RunId(name))
    mine = _logs(folder, "run", "a#1.1.log", "notes.txt")
    (mine / "b#1.1.log").symlink_to(treasure)
    assert not remove_logs(folder, RunId("run"))
    assert sorted(path.name for path in mine.iterdir()) == ["b#1.1.log", "notes.txt"]
    assert treasure.read_text() == "output"
