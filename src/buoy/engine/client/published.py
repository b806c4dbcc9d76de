"""Published: reads the values that the steps of a run published.

Invariant: values come in the order in which the log has them, each once. The number of its event is the place from
which a reader continues; a group of values has one number.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.log import codec
from buoy.core.log import events as e

if TYPE_CHECKING:
    from buoy.engine.client.client import Client


class PublishedValue(msgspec.Struct, frozen=True):
    """One value. `seq`: the event that has it; `claim`: which claim of the run executed the step.

    A step that a crash cut off runs again under a later claim, and its values come again.
    """

    seq: int
    at: float
    step: str
    attempt: int
    claim: int
    channel: str
    value: Any


class PublishedGroup(msgspec.Struct, frozen=True):
    """The values of one event. `dropped`: values that came too fast to be kept. `full`: the run keeps no later ones."""

    seq: int
    values: tuple[PublishedValue, ...]
    dropped: int
    full: bool


def group_of(event: e.Event) -> PublishedGroup | None:
    """What an event publishes, if it does."""
    body = event.body
    if not isinstance(body, e.Published):
        return None
    values = tuple(
        PublishedValue(
            event.seq, event.at, item.step, item.attempt, body.claim, item.channel,
            codec.decode(item.value, Any, f"a value that {item.step} published"),
        )
        for item in body.items
    )  # fmt: skip
    return PublishedGroup(event.seq, values, body.dropped, body.full)


async def published_groups(
    client: Client, run_id: str, *, after: int = 0, follow: bool = True
) -> AsyncIterator[PublishedGroup]:
    """The groups after an event. `follow`: and those to come, until the run ends."""
    head = (await client.record(run_id)).document.head_seq
    if not follow and after >= head:
        return
    async for event in client.follow(run_id, after):
        found = group_of(event)
        if found is not None:
            yield found
        if not follow and event.seq >= head:
            return
