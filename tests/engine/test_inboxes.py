"""Messages reach the runs of a runner, whatever else the runner is doing."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.engine.services.commits import write_of
from buoy.errors import InboxFull
from buoy.ports.records import Held, RunnerInfo

from .faults import opened_with_faults
from .harness import bodies_of, log_of, opened, result_of, until, until_event, until_status
from .scripted_steps import work

GATE = threading.Event()


@buoy.workflow
async def collects(count: int) -> list[Any]:
    return [await buoy.wait_signal("go") for _ in range(count)]


@buoy.workflow
async def works() -> int:
    return await work("step", 1)


@buoy.workflow
def replays_slowly() -> list[Any]:
    first = buoy.wait_signal("go")
    GATE.wait()
    return [first, buoy.wait_signal("go")]


async def test_a_signal_reaches_its_run_while_another_run_is_taken_over(every_url: str) -> None:
    async with buoy.connect(every_url) as client, opened_with_faults(every_url, collects, works) as (app, store):
        await app.start_as("quick", collects, 1)
        await until_status(client, "quick", "waiting_signal")
        log = store.hold("events")
        await client.start_as("slow", works)
        await until(lambda: store.calls["events"] > 0, "the runner to read the log of the other run")
        await client.signal("quick", "go", "now")
        await until_status(client, "quick", "completed")
        assert (await client.record("slow")).document.status == "pending"
        log.set()
        await until_status(client, "slow", "completed")


async def test_a_run_that_is_being_replayed_takes_messages_afterwards(every_url: str) -> None:
    GATE.set()
    async with opened(every_url, replays_slowly) as first:
        await first.start_as("run", replays_slowly)
        await first.signal("run", "go", 1)
        await until_event(first, "run", "signal_waited", 2)
    GATE.clear()
    async with (
        buoy.connect(every_url) as client,
        opened_with_faults(every_url, replays_slowly, collects) as (app, store),
    ):
        try:
            await client.signal("run", "go", 2)
            await until(lambda: app.runner is not None and "run" in app.runner.executions, "the replay to begin")
            await client.signal("run", "go", 3)
            looks = store.calls["unread_runs"]
            await until(lambda: store.calls["unread_runs"] > looks + 1, "the runner to look at its inboxes")
        finally:
            GATE.set()
        assert await result_of(client, await client.get("run")) == [1, 2]
        assert [each.reason for each in await bodies_of(client, "run", e.Paused)] == []


async def test_what_a_commit_says_was_seen_is_not_written_once_more(every_url: str) -> None:
    async with buoy.connect(every_url) as client, opened_with_faults(every_url, collects) as (app, store):
        await app.start_as("run", collects, 5)
        for number in range(5):
            await until_event(client, "run", "signal_waited", number + 1)
            await client.signal("run", "go", number)
        assert await result_of(client, await client.get("run")) == [0, 1, 2, 3, 4]
        assert store.calls["mark_read"] == 0


async def test_a_message_that_changes_nothing_is_marked_as_seen(every_url: str) -> None:
    async with buoy.connect(every_url) as client, opened_with_faults(every_url, collects) as (app, store):
        await app.start_as("run", collects, 1)
        await until_status(client, "run", "waiting_signal")
        before = await log_of(client, "run")
        await client.signal("run", "unasked")
        await until(lambda: any(name == "mark_read" for name, _ in store.done), "the message to be marked as seen")
        assert app.runner is not None
        assert await client.store.unread_runs(app.runner.id) == []
        assert await log_of(client, "run") == before


@buoy.workflow
async def parent_of_one() -> int:
    return await works()


async def test_a_living_owner_does_not_lift_the_bound_on_what_it_has_not_consumed(
    every_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buoy.core.limits.INBOX_UNREAD_MAX", 5)
    async with opened(every_url, collects) as app:
        await app.start_as("run", collects, 2)
        await until_status(app, "run", "waiting_signal")
        for number in range(5):
            await app.signal("run", "other", number)
        with pytest.raises(InboxFull, match="run is full: 5 messages"):
            await app.signal("run", "go", 1)
        # A run with a full inbox can still be stopped.
        await app.cancel("run")
        await until_status(app, "run", "cancelled")


async def test_consumed_messages_make_room(every_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.core.limits.INBOX_UNREAD_MAX", 3)
    async with opened(every_url, collects) as app:
        run = await app.start_as("run", collects, 12)
        for number in range(12):
            await app.signal("run", "go", number)
            await until_event(app, "run", "signal_received", number + 1)
        assert await result_of(app, run) == list(range(12))


async def test_signals_do_not_keep_the_end_of_a_child_from_its_parent(
    every_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buoy.core.limits.INBOX_UNREAD_MAX", 2)
    async with buoy.connect(every_url) as client:
        await client.start_as("run", parent_of_one)
        for number in range(2):
            await client.signal("run", "noise", number)
    async with opened(every_url, parent_of_one, works) as app:
        assert await result_of(app, await app.get("run")) == 1


async def test_an_execution_that_is_not_durable_calls_no_message_seen(any_url: str) -> None:
    """A parent asks for its child while the same runner takes that child from a dead runner."""
    created = e.WorkflowCreated(workflow=collects.name, input=msgspec.Raw(b'{"count":1}'), version=collects.version)
    bodies = [created, e.Claimed(runner="dead", cause="created"), e.SignalWaited(leaf=LeafId("signal:go#1"), name="go")]
    async with buoy.connect(any_url) as client, opened_with_faults(any_url, collects) as (app, store):
        runner = app.runner
        assert runner is not None
        await client.store.register(RunnerInfo("dead", "elsewhere", "b", "ns", 1, "0", "x"))
        commits = store.hold("commit")
        new = append(RunId("run"), (), bodies, 100.0, "n1")
        await client.store.commit([write_of(new, Held(RunnerId("dead")))])
        await client.store.declare_dead(RunnerId("dead"), "lock free", cause="taken_over", evidence={"proof": "x"})
        await until(lambda: store.calls["commit"] > 0, "the claim to be under way")
        made = runner.create(collects, RunId("run"), created)
        await client.signal("run", "go", 7)
        looks = store.calls["unread_runs"]
        await until(lambda: store.calls["unread_runs"] > looks + 1, "the runner to look at its inboxes")
        commits.set()
        assert not await made
        assert await result_of(app, await app.get("run")) == [7]
