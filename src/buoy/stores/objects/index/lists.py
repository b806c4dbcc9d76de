"""Lists in objects: runs newest first, by the keys of an index that sorts so.

Invariants: a page begins after the place where the last one ended, so later writes neither shift nor repeat it. Runs
that have not ended are listed from `active/`, so that a million ended ones cost nothing. A run that no runner holds
costs one read (`Runs.glimpse`). The inbox is listed only of runs that have a wake-up.
"""

from __future__ import annotations

from typing import NamedTuple

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.times import StoreTime
from buoy.errors import BadInput, CorruptLog
from buoy.ports.host import Clock
from buoy.ports.records import Broken, RunPage, RunQuery, RunRecord
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import Index, each
from buoy.stores.objects.index.feed import IndexFeed, next_entries
from buoy.stores.objects.records import StoredRun
from buoy.stores.objects.runs import Runs
from buoy.stores.scopes import fits_scope
from buoy.stores.unreadable import UNREADABLE, broken

PAGE = 100


class ListedRun(NamedTuple):
    """A run of a list, and where it is in it."""

    place: str
    run: StoredRun | Broken


class Lists:
    """Finds runs."""

    def __init__(self, bucket: Bucket, index: Index, runs: Runs, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._runs = runs
        self._clock = clock

    async def find(self, query: RunQuery, cursor: str | None, limit: int) -> RunPage:
        limit = max(1, min(limit, RUNS_PAGE_MAX))
        place = _place(cursor)
        if query.holder is not None:
            found = await self.held_by(query.holder, query, place)
        elif query.hinted and query.statuses == (Status.PAUSED,):
            found = await self._paused(query, place)
        else:
            found = await self._indexed(_indexes(query), query, place, limit)
        now, woken = self._clock.now(), await self._woken() if found else frozenset[RunId]()
        shown = await each(found[:limit], lambda one: self._record(one.run, now, woken))
        return RunPage(
            tuple(one for one in shown if isinstance(one, RunRecord)),
            found[limit - 1].place if len(found) > limit else None,
            tuple(one for one in shown if isinstance(one, Broken)),
        )

    async def ids(self, prefix: str, limit: int) -> list[RunId]:
        """Each listing begins behind all that belongs to the last run of the one before."""
        exact = [RunId(prefix)] if await self._bucket.list(layout.run_prefix(RunId(prefix)), limit=1) else []
        found = [run_id for run_id in exact if await self._there(run_id)]
        after: str | None = None
        while len(found) < limit:
            keys = await self._bucket.list(layout.runs_prefix(prefix), after=after, limit=PAGE)
            run_ids = list(dict.fromkeys(run_id for key in keys if (run_id := layout.run_of(key)) is not None))
            for run_id in run_ids:
                if len(found) < limit and run_id not in exact and await self._there(run_id):
                    found.append(run_id)
            if len(keys) < PAGE:
                break
            # What is there and is no run of ours is passed over by its own key.
            after = max(keys[-1], f"{layout.run_prefix(run_ids[-1])}~" if run_ids else "")
        return found

    async def _there(self, run_id: RunId) -> bool:
        """A run whose log cannot be read is there anyway."""
        try:
            return not await self._runs.purged(run_id)
        except CorruptLog:
            return True

    async def _woken(self) -> frozenset[RunId]:
        """Runs with a message that their owner may not have seen. A wake-up stands from before its message on."""
        entries = (layout.wake_entry(key) for key in await self._bucket.list(layout.WAKE))
        return frozenset(entry.run_id for entry in entries if entry is not None)

    async def _record(self, run: StoredRun | Broken, now: float, woken: frozenset[RunId]) -> RunRecord | Broken:
        if isinstance(run, Broken):
            return run
        try:
            return await self._runs.record(run, now, all_seen=run.run_id not in woken)
        except UNREADABLE as error:
            return broken("run", run.run_id, layout.inbox_prefix(run.run_id), error)

    async def held_by(self, holder: RunnerId, query: RunQuery, place: str | None) -> list[ListedRun]:
        keys = await self._bucket.list(layout.held_prefix(holder))
        entries = [entry for key in keys if (entry := layout.held_entry(key)) is not None]
        return await self._some([entry.run_id for entry in entries], query, place)

    async def _paused(self, query: RunQuery, place: str | None) -> list[ListedRun]:
        """By the entries of paused runs alone. One that a runner holds has none, and one of an earlier release."""
        keys = await self._bucket.list(layout.PARKED_PAUSED)
        entries = [entry for key in keys if (entry := layout.parked_entry(key)) is not None]
        return await self._some([entry.run_id for entry in entries], query, place)

    async def _some(self, run_ids: list[RunId], query: RunQuery, place: str | None) -> list[ListedRun]:
        runs = await each(list(dict.fromkeys(run_ids)), self._runs.look)
        some = [_found(run) for run in runs if run is not None and (isinstance(run, Broken) or _matches(run, query))]
        return sorted((one for one in some if place is None or one.place > place), key=lambda one: one.place)

    async def _indexed(
        self, prefixes: tuple[str, ...], query: RunQuery, place: str | None, limit: int
    ) -> list[ListedRun]:
        """Up to one more than `limit`, so that the caller knows whether there is another page."""
        newest = "" if query.created_before is None else layout.place_of_time(query.created_before)
        oldest = "~" if query.created_from is None else f"{layout.place_of_time(query.created_from)}~~"
        feeds = [IndexFeed(self._bucket, prefix, max(newest, place or "")) for prefix in prefixes]
        found: list[ListedRun] = []
        # A run that is about to end, or has just ended, is in both indexes.
        shown = {(place or "~").split("~")[1]}
        purges: frozenset[RunId] | None = None
        while len(found) <= limit:
            # Only so many are read as the page still needs.
            part = [entry for entry in await next_entries(feeds, limit + 1 - len(found)) if entry.place <= oldest]
            if not part:
                break
            part = [entry for entry in part if not await self._shown_before(entry, place)]
            if purges is None:
                # After the names: a run of this page whose purge begins later is shown as it was.
                purges = await self.under_purge()
            for one in await self._fitting(part, query, purges):
                if (run_id := one.place.split("~")[1]) not in shown:
                    shown.add(run_id)
                    found.append(one)
        return found

    async def _shown_before(self, entry: layout.RunEntry, place: str | None) -> bool:
        """Whether an earlier page had this run by its entry of an earlier format, which comes before `place`."""
        between = place is not None and entry.place <= place
        return between and await self._bucket.get(f"{layout.INDEX}{entry.place}") is not None

    async def _fitting(
        self, entries: list[layout.RunEntry], query: RunQuery, purges: frozenset[RunId]
    ) -> list[ListedRun]:
        runs = await each(entries, lambda entry: self.listed(entry, purges))
        return [
            ListedRun(entry.key.partition("/")[2], run)
            for entry, run in zip(entries, runs, strict=True)
            if run is not None and (may_match(entry, query) if isinstance(run, Broken) else _matches(run, query))
        ]

    async def under_purge(self) -> frozenset[RunId]:
        """Runs whose purge was started: their `state.json` may outlive their log for a while."""
        names = (layout.purged_run_of(key) for key in await self._bucket.list(layout.PURGES))
        return frozenset(name for name in names if name is not None)

    async def listed(self, entry: layout.RunEntry, purges: frozenset[RunId]) -> StoredRun | Broken | None:
        """The run of an entry, if it is the one entry of its index that stands for this run."""
        if entry.settled and entry.run_id not in purges and (seen := await self._runs.settled_view(entry)) is not None:
            return seen
        look = self._runs.look if entry.run_id in purges else self._runs.glimpse
        view = await look(entry.run_id)
        if view is None:
            await self._index.doubt(entry.key)
            return None
        if isinstance(view, Broken):
            return view
        document = view.document
        if entry.key.startswith(layout.ACTIVE):
            valid = layout.active_key(view.run_id, document.created_at, view.task.active_seq)
            return view if entry.key == valid else None
        if entry.key not in layout.index_keys(view.run_id, document.created_at, view.head_seq):
            # Of a second starter of the same run, who lost; or of an earlier end.
            await self._index.drop([entry.key])
            return None
        self._index.trust(entry.key)
        return view


def _indexes(query: RunQuery) -> tuple[str, ...]:
    """What has not ended is in one index, what has ended in the other."""
    if not query.statuses:
        return layout.ACTIVE, layout.INDEX
    ended = TERMINAL.intersection(query.statuses)
    active = not TERMINAL.issuperset(query.statuses)
    return (*([layout.ACTIVE] if active else []), *([layout.INDEX] if ended else []))


def _matches(view: StoredRun, query: RunQuery) -> bool:
    holds = query.holder is None or (view.task.kind == "held" and view.task.holder == query.holder)
    return holds and fits(view.document, view.updated_at, query)


def fits(document: Document, updated_at: StoreTime, query: RunQuery) -> bool:
    """Whether a run fits the query, its holder aside."""
    if query.statuses and document.status not in query.statuses:
        return False
    if query.workflow is not None and document.workflow != query.workflow:
        return False
    if query.parent is not None and (document.parent is None or document.parent.run != query.parent):
        return False
    return query.text in document.run_id and _in_time(document, updated_at, query) and fits_scope(document, query)


def may_match(entry: layout.RunEntry, query: RunQuery) -> bool:
    """Whether a run that cannot be read fits, as far as its index entry tells. Children are not looked for so."""
    created_at = layout.created_at_place(entry.place)
    return query.parent is None and query.text in entry.run_id and _created_in_time(created_at, query)


def _in_time(document: Document, updated_at: StoreTime, query: RunQuery) -> bool:
    late = query.updated_before is not None and updated_at >= query.updated_before
    return not late and _created_in_time(document.created_at, query)


def _created_in_time(created_at: float, query: RunQuery) -> bool:
    return not (
        (query.created_from is not None and created_at < query.created_from)
        or (query.created_before is not None and created_at >= query.created_before)
    )


def _found(run: StoredRun | Broken) -> ListedRun:
    """What a runner holds, in the order of creation; what cannot be read comes last."""
    if isinstance(run, Broken):
        return ListedRun(layout.place(RunId(run.id), 0.0), run)
    return ListedRun(layout.place(run.run_id, run.document.created_at), run)


def _place(cursor: str | None) -> str | None:
    if cursor is not None:
        number, mark, run_id = cursor.partition("~")
        if not (number.isdecimal() and mark and RunId(run_id)):
            raise BadInput(f"cursor {cursor[:40]!r} is not one that this store gave; begin without a cursor")
    return cursor
