"""The ends of inboxes in objects: the number of a run's last message.

Invariant: a listing begins at the last message that this process met, so what waits unread does not make each further
message dearer. What is remembered is checked by that same listing, which has to begin with it.
"""

from __future__ import annotations

from buoy.core.ids import RunId
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket

# Inboxes whose end this process remembers: of those that it sends to, and then some.
KNOWN_MAX = 20_000


class InboxEnds:
    """Finds the last message of inboxes."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._known: dict[RunId, int] = {}

    async def end(self, run_id: RunId, after: int) -> int:
        """The number of the last message; `after` if none has a higher one."""
        known = self._known.get(run_id, 0)
        found = await self._numbers(run_id, max(after, known - 1))
        if known > after + 1 and found[:1] != [known]:
            found = await self._numbers(run_id, after)
        last = found[-1] if found else after
        self._known.pop(run_id, None)
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[run_id] = last
        return last

    async def _numbers(self, run_id: RunId, after: int) -> list[int]:
        prefix = layout.inbox_prefix(run_id)
        return layout.numbers_of(await self._bucket.list(prefix, after=layout.inbox_key(run_id, after)), prefix)
