"""Loading: reads whole logs from a store, page by page."""

from __future__ import annotations

from buoy.core.events import Event
from buoy.core.ids import RunId
from buoy.core.limits import EVENTS_PAGE, SPEC_LOG_EVENTS_MAX
from buoy.errors import CorruptLog
from buoy.ports import Store


async def read_log(store: Store, run_id: RunId, after: int = 0) -> list[Event]:
    """All events after a number, in order, without gaps; anything else is a broken log."""
    events: list[Event] = []
    expected = after + 1
    while len(events) <= 2 * SPEC_LOG_EVENTS_MAX:
        page = await store.events(run_id, after=expected - 1, limit=EVENTS_PAGE)
        for event in page:
            if event.seq != expected:
                raise CorruptLog(f"the log of {run_id} has event {event.seq} where {expected} was expected")
            expected += 1
        events.extend(page)
        if len(page) < EVENTS_PAGE:
            return events
    raise CorruptLog(f"the log of {run_id} is longer than Buoy ever writes one")
