"""Read log: reads logs, and the unread part of inboxes, from a store, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Set

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import EVENTS_PAGE, INBOX_PAGE, SPEC_LOG_EVENTS_MAX
from buoy.core.log.events import Event
from buoy.errors import CorruptLog
from buoy.ports.records import Message
from buoy.ports.store import Store


async def read_log(store: Store, run_id: RunId, after: int = 0) -> list[Event]:
    """All events after a number, in order, without gaps; anything else is a broken log."""
    events: list[Event] = []
    expected = after + 1
    while len(events) <= 2 * SPEC_LOG_EVENTS_MAX:
        page = await store.events(run_id, after=expected - 1, limit=EVENTS_PAGE)
        numbers = [event.seq for event in page]
        if numbers != list(range(expected, expected + len(page))):
            place = next(place for place, seq in enumerate(numbers) if seq != expected + place)
            raise CorruptLog(f"the log of {run_id} has event {numbers[place]} where {expected + place} was expected")
        expected += len(page)
        events.extend(page)
        if len(page) < EVENTS_PAGE:
            return events
    raise CorruptLog(f"the log of {run_id} is longer than Buoy ever writes one")


async def inbox_pages(store: Store, run_id: RunId, after: int = 0) -> AsyncIterator[list[Message]]:
    """The messages after a number. Numbers have no gaps, so a page that ends early is the last."""
    while True:
        page = await store.inbox(run_id, after, INBOX_PAGE)
        if not page:
            return
        yield page
        # Not the last one of the page: a delivery may be out of order.
        last = max(message.number for message in page)
        if last - after < INBOX_PAGE:
            return
        after = last


async def unread_inbox(store: Store, run_id: RunId, consumed: Set[int]) -> list[Message]:
    """The messages that a log has not consumed, and the last one of all: its number says how far the inbox was read.

    Of the others only those are kept, without their bodies, that have a twin among the unread ones. What comes before
    the first message that was not consumed is not even read.
    """
    begin = 0
    while begin + 1 in consumed:
        begin += 1
    unread: dict[int, Message] = {}
    read: dict[str, Message] = {}
    last: Message | None = None
    async for page in inbox_pages(store, run_id, max(begin - 1, 0)):
        for message in page:
            last = message if last is None or message.number > last.number else last
            if message.number in consumed:
                read[message.dedupe] = msgspec.structs.replace(message, body=msgspec.Raw(b"null"))
            else:
                unread[message.number] = message
    twins = [read[each.dedupe] for each in unread.values() if each.dedupe in read]
    found = {each.number: each for each in (*twins, *(() if last is None else (last,)))} | unread
    return [found[number] for number in sorted(found)]
