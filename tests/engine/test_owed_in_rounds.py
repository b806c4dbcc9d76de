"""What an ended run owes to several others: one that cannot take it now delays only itself."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.run.outbox import Outbox
from buoy.engine.run.owed import SendMessage
from buoy.errors import CorruptLog, Unavailable
from buoy.ports.records import Message
from tests.patience import until

from .faults import FaultyStore, opened_with_faults
from .harness import bodies_of, opened, until_event, until_status


@buoy.workflow(queue="nobody-serves-it")
async def kid(n: int) -> int:
    await buoy.wait_signal("never")
    return n


@buoy.workflow
async def parent() -> None:
    async def fails() -> None:
        await buoy.wait_signal("fail")
        raise ValueError("the parent fails")

    await asyncio.gather(*(kid(n) for n in range(3)), fails())


async def kinds(store: Any, run_id: str) -> list[str]:
    return [each.kind for each in await store.inbox(RunId(run_id))]


async def test_a_child_whose_inbox_is_full_holds_up_no_sibling(every_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.core.limits.INBOX_UNREAD_MAX", 2)
    monkeypatch.setattr("buoy.core.limits.INBOX_RESERVE", 0)
    async with opened(every_url, parent, kid) as app:
        await app.start_as("p", parent)
        await until_event(app, "p", "child_started", 3)
        full, *others = (started.child for started in await bodies_of(app, "p", e.ChildStarted))
        for child in (full, *others):
            await until(lambda child=child: _born(app, child), f"the birth of {child}")  # type: ignore[misc]
        await app.signal(full, "noise", 1)
        await app.signal(full, "noise", 2)
        await app.signal("p", "fail")
        await until_status(app, "p", "failed")
        for child in others:
            await until(lambda child=child: _cancelled(app, child), f"the cancellation of {child}")  # type: ignore[misc]
        assert await kinds(app.store, full) == ["signal", "signal"]
        # The ended run keeps its task until the last of its children has heard of its end.
        record = await app.store.run(RunId("p"))
        assert record is not None and record.envelope.orchestrator_task_id is not None
        monkeypatch.setattr("buoy.core.limits.INBOX_RESERVE", 1)
        await until(lambda: _cancelled(app, full), "the cancellation of the child that was full")


async def _born(app: buoy.Client, run_id: str) -> bool:
    return await app.store.run(RunId(run_id)) is not None


async def _cancelled(app: buoy.Client, run_id: str) -> bool:
    return "cancel" in await kinds(app.store, run_id)


def words(target: str, *names: str) -> list[SendMessage]:
    return [SendMessage(Message(RunId(target), "signal", name, msgspec.Raw(b'{"name":"x"}'))) for name in names]


async def sent_by(outbox: Outbox, store: FaultyStore, *owed: SendMessage) -> list[str]:
    """The messages that arrived, in their order, when all that was owed is done."""
    before = len(store.done)
    outbox.finish(RunId("over"), owed)
    await until(lambda: not outbox._finishing, "the duties to be done")
    return [args[0].dedupe for name, args in store.done[before:] if name == "send"]


@pytest.mark.parametrize(
    ("error", "order"),
    [
        # Of the run alone: the others are next.
        (CorruptLog("a cannot be read"), ["b1", "b2", "c1", "a1", "a2"]),
        # Of the store: nothing else is tried in this round, and another run begins the next one.
        (Unavailable("no answer"), ["b1", "b2", "c1", "a1", "a2"]),
    ],
)
async def test_what_one_run_is_owed_keeps_its_order(any_url: str, error: Exception, order: list[str]) -> None:
    async with opened_with_faults(any_url, kid) as (app, store):
        assert app.runner is not None
        for name in "abc":
            await app.start_as(name, kid, 1)
        store.fail("send", "before", error=error)
        owed = [*words("a", "a1"), *words("b", "b1"), *words("a", "a2"), *words("b", "b2"), *words("c", "c1")]
        assert await sent_by(app.runner.outbox, store, *owed) == order


async def test_a_store_that_gives_no_answer_is_asked_once_in_a_round(any_url: str) -> None:
    async with opened_with_faults(any_url, kid) as (app, store):
        assert app.runner is not None
        await app.start_as("a", kid, 1)
        await app.start_as("b", kid, 1)
        calls = store.calls["send"]
        store.fail("send", "before", times=2)
        assert await sent_by(app.runner.outbox, store, *words("a", "a1"), *words("b", "b1")) == ["a1", "b1"]
        assert store.calls["send"] == calls + 4


async def test_a_word_to_a_run_that_never_comes_is_given_up_and_delays_no_other(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buoy.engine.run.outbox._PAUSE_MAX_S", 0.01)
    async with opened_with_faults(any_url, kid) as (app, store):
        assert app.runner is not None
        await app.start_as("b", kid, 1)
        calls = store.calls["send"]
        assert await sent_by(app.runner.outbox, store, *words("nobody", "n1", "n2"), *words("b", "b1")) == ["b1"]
        assert store.calls["send"] == calls + 1 + 2 * 6
