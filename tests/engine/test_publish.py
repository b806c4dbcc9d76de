"""What steps publish: in order, within a bound, never twice by a replay, and never at the cost of the step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import buoy
from buoy.core import limits
from buoy.core.log import events as e
from buoy.engine.run import publications
from tests.patience import PATIENCE_S

from .harness import bodies_of, log_of, opened, plant, result_of, types_of

GO = threading.Event()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    GO.clear()
    yield
    GO.set()


@buoy.step
async def speak(words: list[str], channel: str) -> int:
    for word in words:
        buoy.publish(word, channel=channel)
    return len(words)


@buoy.step
def speak_and_wait(word: str) -> None:
    buoy.publish(word, channel="slow")
    GO.wait(PATIENCE_S)
    buoy.publish({"last": True})


@buoy.workflow
async def talk(times: int) -> int:
    said = 0
    for n in range(times):
        said += await speak([f"{n}.{each}" for each in range(3)], "words")
    return said


@buoy.workflow
def slow_talk() -> None:
    speak_and_wait("first")


async def values_of(run: buoy.Run[Any], channel: str | None = None) -> list[Any]:
    return [each.value async for each in run.published(channel, follow=False)]


async def test_values_are_kept_in_order_before_the_end_of_their_step(every_url: str) -> None:
    async with opened(every_url, talk) as app:
        run = await app.start_as("r", talk, 2)
        assert await result_of(app, run) == 6
        assert await values_of(run) == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
        assert await values_of(run, "other") == []
        kinds = [each for each in await types_of(app, "r") if each in ("published", "step_completed")]
        assert (
            kinds
            == [
                "published",
                "step_completed",
            ]
            * 2
        )
        # No commit of their own: they are in the one that ends the step.
        assert [event.nonce for event in await log_of(app, "r") if event.type == "step_completed"] == [None, None]
        found = [each async for each in run.published("words")]
        assert (found[0].step, found[0].attempt, found[0].claim) == ("speak#1", 1, 1)
        assert [each.value for each in found if each.seq > found[2].seq] == ["1.0", "1.1", "1.2"]


async def test_a_value_is_readable_while_its_step_still_runs(any_url: str) -> None:
    async with opened(any_url, slow_talk) as app:
        run = await app.start_as("r", slow_talk)
        async for each in run.published():  # ends with the run
            if each.channel == "slow":
                assert "step_completed" not in await types_of(app, "r")
                GO.set()
        assert await values_of(run) == ["first", {"last": True}]


async def test_a_replay_publishes_nothing(any_url: str) -> None:
    async with opened(any_url, talk) as app:
        run = await app.start_as("r", talk, 2)
        await result_of(app, run)
        log = await log_of(app, "r")
        assert isinstance(log[-1].body, e.WorkflowCompleted)
        # What a crash after the last step leaves behind.
        await plant(app.store, "again", log[:-1])
        again = await app.get("again")
        assert await result_of(app, again) == 6
        assert await values_of(again) == await values_of(run)


async def test_a_run_keeps_values_up_to_its_limit_and_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "PUBLISHED_BYTES_MAX", 1_200)
    monkeypatch.setattr(publications, "PUBLISH_WAITING_MAX", 2)
    async with opened(url, talk) as app:
        run = await app.start_as("r", talk, 9)
        assert await result_of(app, run) == 27
        groups = await bodies_of(app, "r", e.Published)
        assert [each.full for each in groups] == [False] * (len(groups) - 1) + [True]
        assert [each.dropped for each in groups] == [1] * len(groups)
        assert 2 <= len(groups) < 9


@buoy.step
async def misuse(kind: str) -> None:
    buoy.publish({"nothing": object()} if kind == "value" else "x" * (limits.PUBLISH_VALUE_BYTES_MAX + 1))


@buoy.workflow
async def misused(kind: str) -> None:
    await misuse(kind)


@buoy.workflow
async def outside_of_a_step() -> None:
    buoy.publish(1)


@pytest.mark.parametrize(("kind", "error"), [("value", "NotJson"), ("size", "TooLarge")])
async def test_what_cannot_be_kept_fails_the_step(url: str, kind: str, error: str) -> None:
    async with opened(url, misused, outside_of_a_step) as app:
        with pytest.raises(buoy.RunFailed, match=error):
            await (await app.start_as("r", misused, kind)).result()
        with pytest.raises(buoy.RunFailed, match="inside a step only"):
            await (await app.start_as("w", outside_of_a_step)).result()


def test_outside_of_a_run_publish_checks_and_drops() -> None:
    buoy.publish("word", channel="words")
    with pytest.raises(buoy.BadInput, match="channel"):
        buoy.publish("word", channel="")
