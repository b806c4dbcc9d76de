"""Published: the values that the steps of a run published, by pages or as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from buoy.core.ids import check_run_id
from buoy.core.limits import EVENTS_PAGE
from buoy.engine.client.client import Client
from buoy.engine.client.published import PublishedValue, group_of, published_groups
from buoy.errors import BadInput


class PublishedPage(msgspec.Struct, frozen=True):
    """Values in order. `after`: the number to continue from. `full`: the run keeps no later values."""

    run_id: str
    values: list[PublishedValue]
    after: int
    dropped: int
    full: bool
    ended: bool


async def published_page(client: Client, run_id: str, channel: str | None = None, after: int = 0) -> PublishedPage:
    """The values in one page of the log after that number."""
    if after < 0:
        raise BadInput(f"after must be 0 or more: {after}")
    record = await client.record(run_id)
    events = await client.store.events(check_run_id(run_id), after, EVENTS_PAGE)
    groups = [found for found in map(group_of, events) if found is not None]
    values = [each for group in groups for each in group.values if channel is None or each.channel == channel]
    reached = events[-1].seq if events else after
    return PublishedPage(
        run_id=record.document.run_id,
        values=values,
        after=reached,
        dropped=sum(group.dropped for group in groups),
        full=any(group.full for group in groups),
        ended=record.document.ended and reached >= record.document.head_seq,
    )


async def follow_published(
    client: Client, run_id: str, channel: str | None = None, after: int = 0, *, follow: bool = True
) -> AsyncIterator[PublishedValue]:
    """The values after that number. `follow`: and those to come, until the run ends."""
    async for group in published_groups(client, run_id, after=after, follow=follow):
        for value in group.values:
            if channel is None or value.channel == channel:
                yield value
