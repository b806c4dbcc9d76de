"""Moves in objects: which index entries came and went since the last look, and what this process wrote itself.

Entries name the version of a task. So they show which runs were created, taken, given back, woken or ended, by any
process. A step of a run that another process drives leaves no entry: it shows with the next of these. A look lists four
indexes: four requests for up to a thousand active runs, and more for more. It reads no object. Each store remembers its
own feed; a cursor of another store, or one that is too old, begins now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from buoy.core.ids import RunId
from buoy.stores.moves import place_of
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket

# Moves that are remembered for those who ask late.
KEPT_MAX = 10_000


class Moves:
    """The feed of one store."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._entries: frozenset[str] | None = None
        self._feed: deque[RunId] = deque(maxlen=KEPT_MAX)
        self._end = 0

    def note(self, run_ids: Iterable[RunId]) -> None:
        """Notes what this process wrote. Nothing is remembered before the first request for moves."""
        if self._entries is not None:
            self._add(run_ids)

    def _add(self, run_ids: Iterable[RunId]) -> None:
        for run_id in run_ids:
            self._feed.append(run_id)
            self._end += 1

    async def since(self, cursor: str | None, limit: int) -> tuple[list[RunId], str]:
        place = None if cursor is None else place_of(cursor)
        await self._look()
        first = self._end - len(self._feed)
        if place is None or not first <= place <= self._end:
            return [], str(self._end)
        part = list(self._feed)[place - first :][: max(limit, 1)]
        return list(dict.fromkeys(part)), str(place + len(part))

    async def _look(self) -> None:
        prefixes = (layout.ACTIVE, layout.HELD, layout.TASKS, layout.WAKE)
        now = frozenset([key for prefix in prefixes for key in await self._bucket.list(prefix)])
        before, self._entries = self._entries, now
        if before is not None:
            found = (_run_of(key) for key in sorted(now ^ before))
            self._add(dict.fromkeys(run_id for run_id in found if run_id is not None))


def _run_of(key: str) -> RunId | None:
    if key.startswith(layout.ACTIVE):
        entry: layout.RunEntry | layout.HeldEntry | layout.TaskEntry | layout.WakeEntry | None = layout.run_entry(key)
    elif key.startswith(layout.HELD):
        entry = layout.held_entry(key)
    else:
        entry = layout.task_entry(key) if key.startswith(layout.TASKS) else layout.wake_entry(key)
    return None if entry is None else entry.run_id
