"""Counts in objects: how many runs there are of each status, in one pass.

What has not ended is read, by `active/`: one or two requests for each run, as for a list. What ended is read by
`index/`, the newest first: one request for each, for so many as a count may read. Older ones are counted by their names
alone, a thousand for one request; that they ended is certain, how they ended is unknown. Where each request is billed,
a count reads a bounded number of names, and says that there are more. A run counts once, however many entries it has
and whatever happens to it in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import COUNTED_MAX
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.times import StoreTime
from buoy.ports.records import ENDED, MORE, RunQuery
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.index.lists import Lists, fits, may_match
from buoy.stores.objects.records import StoredRun
from buoy.stores.objects.runs import Runs

# One less than a server lists at once: where a listing begins with the last key once more, it is one request too.
PAGE = 999
# Runs that ended whose documents a count reads where each read is billed: fewer if every run that ended fits the query.
COUNTED_METERED, COUNTED_UNFILTERED = 20, 10
# Listings of a thousand names each that a count makes there.
PAGES_METERED = 10


class Counts:
    """Counts runs."""

    def __init__(self, bucket: Bucket, runs: Runs, lists: Lists) -> None:
        self._bucket = bucket
        self._runs = runs
        self._lists = lists

    async def count(self, query: RunQuery) -> dict[str, int]:
        if query.holder is not None:
            held = await self._lists.held_by(query.holder, query, None)
            return dict(Counter(str(one.run.document.status) for one in held if isinstance(one.run, StoredRun)))
        counts, active, counted = Counter[str](), set[RunId](), set[RunId]()
        purges = await self._lists.under_purge()
        async for entries in self._pages(layout.ACTIVE):
            active.update(entry.run_id for entry in entries)
            read = entries if _of_active(query) else []
            for run in await each(read, lambda entry: self._lists.listed(entry, purges)):
                if isinstance(run, StoredRun) and run.run_id not in counted:
                    counted.add(run.run_id)
                    counts[run.document.status] += fits(run.document, run.updated_at, query)
        if not query.statuses or TERMINAL.intersection(query.statuses):
            more = await self._ended(query, active | purges, counted, counts)
        else:
            more = False
        found = {status: number for status, number in counts.items() if number}
        return {**found, MORE: 0} if more else found

    async def _ended(self, query: RunQuery, doubtful: set[RunId], counted: set[RunId], counts: Counter[str]) -> bool:
        """`counted`: runs that count already, also one that ended just now. Later entries of one run say more.
        `doubtful`: runs of which an entry alone proves nothing: they are active, or their purge was begun.

        Whether there are more than were counted.
        """
        read = pages = 0
        metered = self._bucket.pulse() is None
        async for entries in self._pages(layout.INDEX):
            if metered and pages == PAGES_METERED:
                return bool(entries)
            pages += 1
            fresh = [entry for entry in entries if entry.run_id not in counted and may_match(entry, query)]
            chosen = list({entry.run_id: entry for entry in fresh}.values())
            counted.update(entry.run_id for entry in chosen)
            most = max((_read_max(query) if metered else COUNTED_MAX) - read, 0)
            rest = [entry for entry in chosen[most:] if entry.run_id not in doubtful]
            # A name proves nothing of a run that may be active. There are few that seem to be both.
            chosen_now = chosen[:most] + [entry for entry in chosen[most:] if entry.run_id in doubtful]
            read += len(chosen[:most])
            for found in await each(chosen_now, lambda entry: self._document(entry, doubtful)):
                if found is not None and found[0].ended and fits(*found, query):
                    counts[found[0].status] += 1
            if rest:
                counts[ENDED] += len(rest)
        return False

    async def _document(self, entry: layout.RunEntry, doubtful: set[RunId]) -> tuple[Document, StoreTime] | None:
        """Of a run that ended; a run is active for a moment after that, until its entry is removed."""
        certain = entry.run_id not in doubtful
        if entry.settled and certain and (view := await self._runs.settled_view(entry)) is not None:
            return view.document, view.updated_at
        found = await self._runs.summary(entry.run_id) if certain else None
        if found is not None and found[0].ended:
            return found if layout.place(found[0].run_id, found[0].created_at) == entry.place else None
        run = await self._lists.listed(entry, frozenset({entry.run_id}))
        return (run.document, run.updated_at) if isinstance(run, StoredRun) else None

    async def _pages(self, prefix: str) -> AsyncIterator[list[layout.RunEntry]]:
        after: str | None = None
        while True:
            keys = await self._bucket.list(prefix, after=after, limit=PAGE)
            yield [entry for key in keys if (entry := layout.run_entry(key)) is not None]
            if len(keys) < PAGE:
                return
            after = keys[-1]


def _of_active(query: RunQuery) -> bool:
    return not query.statuses or not TERMINAL.issuperset(query.statuses)


def _read_max(query: RunQuery) -> int:
    every = not query.statuses or TERMINAL.issubset(query.statuses)
    unfiltered = every and msgspec.structs.replace(query, statuses=()) == RunQuery()
    return COUNTED_UNFILTERED if unfiltered else COUNTED_METERED
