"""Index feed: the entries of one or two indexes of runs, newest first, a page at a time.

Invariant: both are in the order of what follows the prefix. So a list continues in both after one such text.
"""

from __future__ import annotations

from collections import deque

from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket

PAGE = 100


class IndexFeed:
    """The entries of one index after a place."""

    def __init__(self, bucket: Bucket, prefix: str, after: str) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._after: str | None = prefix + after if after else None
        self._over = False
        self.waiting: deque[layout.RunEntry] = deque()

    async def fill(self) -> bool:
        """Whether there is another entry."""
        while not self.waiting and not self._over:
            keys = await self._bucket.list(self._prefix, after=self._after, limit=PAGE)
            self.waiting.extend(entry for key in keys if (entry := layout.run_entry(key)) is not None)
            self._over = len(keys) < PAGE
            self._after = keys[-1] if keys else self._after
        return bool(self.waiting)


async def next_entries(feeds: list[IndexFeed], number: int) -> list[layout.RunEntry]:
    """The next entries of all feeds together, so many if there are."""
    found: list[layout.RunEntry] = []
    while len(found) < number and (standing := [feed for feed in feeds if await feed.fill()]):
        first = min(standing, key=lambda feed: feed.waiting[0].key.partition("/")[2])
        found.append(first.waiting.popleft())
    return found
