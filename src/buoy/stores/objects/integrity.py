"""Integrity checks of an object store: every index entry against its run, and every run against its entries.

Invariants: a check changes nothing. Any process may at once remove an entry that the truth has passed. An entry without
its truth may be new. It is removed only if it is still so after longer than any writer goes without writing its entry
again. Missing entries and unreadable documents are written as the truth has them; runs are never changed here. An entry
of a run that cannot be read is left alone: whether it fits is not known. Files that another program put into the store
are reported and left alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import TypeAlias

from buoy.core.ids import RunId
from buoy.core.limits import RUNNERS_GONE_KEPT
from buoy.errors import CorruptLog
from buoy.ports.host import Clock
from buoy.ports.maintenance import IndexTrouble, Refusal, StoreCheck
from buoy.ports.records import Broken
from buoy.stores.clock_check import clock_check
from buoy.stores.objects import layout, marker
from buoy.stores.objects.bucket import Bucket, Changed
from buoy.stores.objects.index.entries import Index, each
from buoy.stores.objects.index.strays import FOREIGN, STRAY, alone, left, strange, stray_of
from buoy.stores.objects.records import StoredRun, listed_entries, passed
from buoy.stores.objects.runners import keys as runner_keys
from buoy.stores.objects.runners.registry import Runners
from buoy.stores.objects.runs import Runs

PAGE = 256
Look: TypeAlias = Callable[[str], Awaitable[IndexTrouble | None]]

# These grow with all that ever ran.
_RUNS = (layout.ACTIVE, layout.INDEX)
_DEEP = frozenset({layout.INDEX, layout.RUNNERS})
# Of the runners that are gone the newest are looked at; a sweep checks the others when it removes them.
_GONE_PAGES = RUNNERS_GONE_KEPT // PAGE + 1
_MISSING = "missing entry"
_DAMAGED = "damaged document"


class ObjectIntegrity:
    """The integrity checks of one object store."""

    def __init__(self, bucket: Bucket, index: Index, runs: Runs, runners: Runners, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._runs = runs
        self._runners = runners
        self._clock = clock
        # What a kind of bucket has to be asked itself.
        self.bucket_checks: Callable[[], Awaitable[list[StoreCheck]]] | None = None

    async def checks(self) -> list[StoreCheck]:
        kept = self._bucket.durability()
        times = [float(record.beat_at) for record in await self._runners.all()]
        for key in [key for prefix in _RUNS for key in await self._bucket.list(prefix, limit=50)]:
            entry = layout.run_entry(key)
            view = None if entry is None else await self._view(entry.run_id)
            times += [] if view is None else [float(view.updated_at)]
        return [
            StoreCheck("schema", True, f"format {marker.FORMAT}"),
            StoreCheck("durability", kept is None, kept or "every write is on the disk before it is answered"),
            clock_check(max(times, default=None), self._clock.now()),
            *(await self.bucket_checks() if self.bucket_checks else ()),
        ]

    async def refusal(self) -> Refusal | None:
        return await self._bucket.refusal()

    async def index_troubles(self, *, deep: bool = False) -> AsyncIterator[IndexTrouble | None]:
        for prefix, look in self._looks().items():
            if deep or prefix not in _DEEP:
                async for found in self._all(prefix, look, _GONE_PAGES if prefix == layout.GONE and not deep else None):
                    yield found
                for name in await self._bucket.foreign(prefix):
                    yield strange(name)
        for look in (self._unannounced, self._spoiled, self._strays):
            async for found in self._all(layout.ACTIVE, look):
                yield found
        if deep:
            for name in (*await self._bucket.foreign(""), *await self._bucket.foreign(layout.WORKFLOW)):
                yield strange(name)
            async for found in self._lost_runs():
                yield found

    def _looks(self) -> dict[str, Look]:
        return {
            layout.ACTIVE: self._active,
            layout.TASKS: self._task,
            layout.HELD: self._held,
            layout.PARKED: self._parked,
            layout.WAKE: self._wake,
            layout.LIVING: self._living,
            layout.GONE: self._gone,
            layout.SCHEDULES: self._schedule,
            layout.PURGES: self._purge,
            layout.INDEX: self._indexed,
            layout.RUNNERS: self._hidden_runner,
        }

    async def _all(self, prefix: str, look: Look, pages: int | None = None) -> AsyncIterator[IndexTrouble | None]:
        after: str | None = None
        for page in count(1):
            keys = await self._bucket.list(prefix, after=after, limit=PAGE)
            for found in await each(keys, look):
                if found is not None:
                    yield found
            if len(keys) < PAGE or page == pages:
                return
            yield None
            after = keys[-1]

    # ---- entries without truth

    async def _active(self, key: str) -> IndexTrouble | None:
        entry = layout.run_entry(key)
        if entry is None:
            return strange(key)
        view = await self._runs.look(entry.run_id)
        if not isinstance(view, StoredRun):
            return alone(key, entry.run_id) if view is None else None
        valid = layout.active_key(view.run_id, view.document.created_at, view.task.active_seq)
        over = view.task.kind == "none" and view.document.ended
        return None if (key == valid and not over) or entry.seq > view.head_seq else left(key, entry.run_id)

    async def _indexed(self, key: str) -> IndexTrouble | None:
        entry = layout.run_entry(key)
        if entry is None:
            return strange(key)
        view = await self._runs.look(entry.run_id)
        if not isinstance(view, StoredRun):
            return alone(key, entry.run_id) if view is None else None
        valid = layout.index_keys(view.run_id, view.document.created_at, view.head_seq)
        return None if key in valid or entry.seq > view.head_seq else left(key, entry.run_id)

    async def _task(self, key: str) -> IndexTrouble | None:
        return await self._versioned(key, layout.task_entry(key))

    async def _held(self, key: str) -> IndexTrouble | None:
        return await self._versioned(key, layout.held_entry(key))

    async def _parked(self, key: str) -> IndexTrouble | None:
        return await self._versioned(key, layout.parked_entry(key))

    async def _versioned(
        self, key: str, entry: layout.TaskEntry | layout.HeldEntry | layout.ParkedEntry | None
    ) -> IndexTrouble | None:
        if entry is None:
            return strange(key)
        view = await self._runs.look(entry.run_id)
        if not isinstance(view, StoredRun):
            return alone(key, entry.run_id) if view is None else None
        return left(key, entry.run_id, stale=True) if passed(key, entry.version, view) else None

    async def _wake(self, key: str) -> IndexTrouble | None:
        entry = layout.wake_entry(key)
        if entry is None:
            return strange(key)
        view = await self._runs.look(entry.run_id)
        if isinstance(view, Broken):
            return None
        if view is None or await self._bucket.get(layout.inbox_key(entry.run_id, entry.number)) is None:
            return alone(key, entry.run_id)
        seen = view.task.kind == "none" or entry.number <= view.task.seen
        return left(key, entry.run_id, stale=True) if seen else None

    async def _living(self, key: str) -> IndexTrouble | None:
        runner = runner_keys.runner_of(key)
        if runner is None:
            return None if key == layout.POKE else strange(key)
        stands = await self._runners.standing(runner)
        if stands == "living":
            return None
        return alone(key, None) if stands == "unregistered" else left(key, None)

    async def _gone(self, key: str) -> IndexTrouble | None:
        runner = runner_keys.runner_of(key)
        if runner is None:
            return strange(key)
        stands = await self._runners.gone_entry(runner)
        return None if stands == key else alone(key, None) if stands is None else left(key, None)

    async def _schedule(self, key: str) -> IndexTrouble | None:
        return strange(key) if layout.schedule_of(key) is None else None

    async def _purge(self, key: str) -> IndexTrouble | None:
        return strange(key) if layout.purged_run_of(key) is None else None

    # ---- truth without entries

    async def _unannounced(self, key: str) -> IndexTrouble | None:
        """An active run whose task is in no queue, or that the death of its holder would not release."""
        entry = layout.run_entry(key)
        view = None if entry is None else await self._view(entry.run_id)
        return None if view is None else await self._missing(view)

    async def _view(self, run_id: RunId) -> StoredRun | None:
        """The run, if it is there and can be read."""
        view = await self._runs.look(run_id)
        return view if isinstance(view, StoredRun) else None

    async def _strays(self, key: str) -> IndexTrouble | None:
        """Files among those of an active run that Buoy did not write."""
        entry = layout.run_entry(key)
        return None if entry is None else await stray_of(self._bucket, entry.run_id)

    async def _missing(self, view: StoredRun) -> IndexTrouble | None:
        for key, _ in listed_entries(view.document, view.task):
            index = layout.index_keys(view.run_id, view.document.created_at, view.head_seq)
            if not any([await self._bucket.get(each) for each in (index if key in index else [key])]):
                return IndexTrouble(_MISSING, f"{view.run_id} has not its entry {key}", key, view.run_id)
        return None

    async def _spoiled(self, key: str) -> IndexTrouble | None:
        """An active run whose `state.json` is there and cannot be read. Nothing is lost while the log has it all."""
        entry = layout.run_entry(key)
        return None if entry is None else await self._damaged(entry.run_id)

    async def _damaged(self, run_id: RunId) -> IndexTrouble | None:
        try:
            saved, etag = await self._runs.saved(run_id)
        except CorruptLog:
            return None  # the run cannot be read, which another check reports
        if saved is not None or etag is None:
            return None
        key = layout.state_key(run_id)
        return IndexTrouble(_DAMAGED, f"its document, {key}, cannot be read", key, run_id)

    async def _hidden_runner(self, key: str) -> IndexTrouble | None:
        """A runner that is not gone, but whom no sweep would look at."""
        runner = runner_keys.runner_of(key)
        if runner is None:
            return strange(key)
        entry = runner_keys.living_key(runner)
        if await self._bucket.get(entry) is not None or await self._runners.why_not_living(runner) is not None:
            return None
        return IndexTrouble(_MISSING, f"runner {runner} has not its entry {entry}", entry)

    async def _lost_runs(self) -> AsyncIterator[IndexTrouble | None]:
        """Goes from run to run by their folders, whether any index knows them or not."""
        after = layout.WORKFLOW
        for number in range(1, 1 << 62):
            keys = await self._bucket.list(layout.WORKFLOW, after=after, limit=1)
            if not keys:
                return
            run_id = layout.run_of(keys[0])
            if run_id is None:
                after = keys[0]
                yield strange(keys[0])
                continue
            after = f"{layout.run_prefix(run_id)}~"
            view = await self._view(run_id)
            found = None if view is None else await self._missing(view)
            for trouble in await self._of_an_ended(view) if view is not None and view.document.ended else ():
                yield trouble
            if found is not None or number % PAGE == 0:
                yield found

    async def _of_an_ended(self, view: StoredRun) -> list[IndexTrouble]:
        """Active runs were looked at by their index."""
        found = (await self._damaged(view.run_id), await stray_of(self._bucket, view.run_id))
        return [each for each in found if each is not None]

    # ---- mending

    async def recheck(self, trouble: IndexTrouble) -> bool:
        if trouble.name == _DAMAGED:
            return trouble.run_id is not None and await self._damaged(trouble.run_id) is not None
        if trouble.name == STRAY:
            return trouble.run_id is not None and await stray_of(self._bucket, trouble.run_id) is not None
        if trouble.name == FOREIGN:
            return True  # no writer is about to turn it into something of ours
        if trouble.name != _MISSING:
            look = self._looks().get(f"{trouble.key.partition('/')[0]}/")
            there = look is not None and await self._bucket.get(trouble.key) is not None
            found = await look(trouble.key) if look is not None and there else None
            return found is not None and found.name == trouble.name
        found = await self._missing_again(trouble)
        return found is not None and found.key == trouble.key

    async def _missing_again(self, trouble: IndexTrouble) -> IndexTrouble | None:
        if trouble.run_id is None:
            runner = runner_keys.runner_of(trouble.key)
            return None if runner is None else await self._hidden_runner(runner_keys.runner_key(runner))
        view = await self._view(trouble.run_id)
        return None if view is None else await self._missing(view)

    async def repair(self, trouble: IndexTrouble) -> bool:
        if not trouble.mendable or not await self.recheck(trouble):
            return False
        if trouble.name == _DAMAGED:
            return await self._write_anew(trouble)
        if trouble.name != _MISSING:
            runner = runner_keys.runner_of(trouble.key) if trouble.key.startswith(layout.LIVING) else None
            if runner is not None:
                return await self._runners.retire_record(runner)
            await self._bucket.delete(trouble.key)
            return True
        view = None if trouble.run_id is None else await self._runs.load(trouble.run_id)
        await self._index.add([(trouble.key, b"{}")] if view is None else listed_entries(view.document, view.task))
        return True

    async def _write_anew(self, trouble: IndexTrouble) -> bool:
        """`state.json` as the log has it; False if the log is empty, or if another process wrote it since."""
        view = None if trouble.run_id is None else await self._runs.load(trouble.run_id)
        if view is None:
            return False
        try:
            await self._runs.save(view)
        except Changed:
            return False
        return True
