"""How inboxes are read: by pages, and only what a log has not consumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.limits import INBOX_PAGE
from buoy.engine.read_log import inbox_pages, unread_inbox
from buoy.ports.records import Message
from buoy.ports.store import Store

RUN = RunId("r")
BODY = b'"' + b"x" * 100 + b'"'


class Inbox:
    """A store with an inbox of so many messages. Counts what it gave away."""

    def __init__(self, number: int, twins: dict[int, int] | None = None) -> None:
        self._number = number
        self._twins = twins or {}
        self.given: list[int] = []
        self.most = 0

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        last = self._number if limit is None else min(self._number, after + limit)
        self.given += range(after + 1, last + 1)
        self.most = max(self.most, last - after)
        return [self._message(number) for number in range(after + 1, last + 1)]

    def _message(self, number: int) -> Message:
        dedupe = f"d{self._twins.get(number, number)}"
        return Message(RUN, "signal", dedupe, msgspec.Raw(BODY), number=number)


class OutOfOrder(Inbox):
    """Each delivery comes twice, first in the wrong order."""

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        found = await super().inbox(run_id, after, limit)
        return [*found[::-1], *found]


def unread(inbox: Inbox, consumed: set[int]) -> list[Message]:
    return asyncio.run(unread_inbox(cast(Store, cast(Any, inbox)), RUN, consumed))


def test_what_was_consumed_from_the_beginning_is_not_read_again() -> None:
    inbox = Inbox(100_000)
    found = unread(inbox, set(range(1, 99_999)))
    assert [each.number for each in found] == [99_999, 100_000]
    assert inbox.given == [99_998, 99_999, 100_000]


def test_a_long_inbox_is_read_by_pages_and_only_the_unread_are_kept() -> None:
    inbox = Inbox(100_000)
    found = unread(inbox, set(range(2, 100_001)))
    assert [each.number for each in found] == [1, 100_000], "the last one tells how far it was read"
    assert inbox.most == INBOX_PAGE


def test_an_inbox_that_was_consumed_whole_still_tells_its_end() -> None:
    assert [each.number for each in unread(Inbox(3), {1, 2, 3})] == [3]
    assert unread(Inbox(0), set()) == []


def test_a_twin_of_a_consumed_message_comes_with_it() -> None:
    found = unread(Inbox(5, {5: 3}), {3, 4})
    assert [(each.number, each.dedupe) for each in found] == [(1, "d1"), (2, "d2"), (3, "d3"), (5, "d3")]
    assert bytes(found[2].body) == b"null", "its body is not kept"


@pytest.mark.parametrize("number", [1, INBOX_PAGE - 1, INBOX_PAGE, INBOX_PAGE + 1, 3 * INBOX_PAGE])
@pytest.mark.parametrize("kind", [Inbox, OutOfOrder])
def test_pages_hold_every_message(number: int, kind: type[Inbox]) -> None:
    async def read() -> set[int]:
        store = cast(Store, cast(Any, kind(number)))
        return {each.number async for page in inbox_pages(store, RUN) for each in page}

    assert asyncio.run(read()) == set(range(1, number + 1))
    assert [each.number for each in unread(kind(number), set())] == list(range(1, number + 1))


@buoy.workflow
async def gathers(number: int) -> list[object]:
    return [await buoy.wait_signal("item") for _ in range(number)]


@pytest.mark.parametrize("before", [0, 10], ids=["sent to a living run", "there when it is taken"])
def test_a_run_gets_its_messages_in_order_over_many_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    for module in ("read_log", "process.inboxes"):
        monkeypatch.setattr(f"buoy.engine.{module}.INBOX_PAGE", 3)
    url = f"sqlite:///{tmp_path}/runs.db"

    async def play() -> None:
        async with buoy.connect(url) as client:
            await client.start_as("r", gathers, 10)
            for number in range(before):
                await client.signal("r", "item", number)
            async with buoy.open(url, workflows=[gathers]) as app:
                for number in range(before, 10):
                    await client.signal("r", "item", number)
                assert await (await app.get("r")).result() == list(range(10))

    asyncio.run(play())
