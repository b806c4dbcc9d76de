"""Retirement in objects: records of runners that are gone and hold nothing are removed, and their indexes tidied.

Invariants: the record goes before its entry in `gone/`, so that an interrupted removal is met again. A runner is
removed only if its own record says that it is gone, and only if it holds nothing. Every call costs a bounded number of
requests: it looks at a part of `runners/`, from where the last call ended, and at the first entries of `gone/`.
Absent on purpose: looking at a clock. What is kept is a number of records, the newest.
"""

from __future__ import annotations

from collections import Counter

from buoy.core.ids import RunnerId
from buoy.ports.records import RunnerRecord
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import Index, each
from buoy.stores.objects.runners import keys as runner_keys
from buoy.stores.objects.runners.registry import Runners

# Names of `runners/` that one call looks at: those of one request.
SCAN_MAX = 1_000
# Records that one call removes where each request is billed: more in an hour than any fleet leaves behind.
RETIRED_BILLED_MAX = 16


class Retirement:
    """Removes the records of those that are gone."""

    def __init__(self, bucket: Bucket, index: Index, runners: Runners) -> None:
        self._bucket = bucket
        self._index = index
        self._runners = runners
        self._place: str | None = None

    async def retire(self, keep: int, limit: int) -> int:
        billed = self._bucket.pulse() is None
        limit = min(limit, RETIRED_BILLED_MAX) if billed else limit
        living = await self._runners.fleet.look(glance=True)
        await each(living.items(), self._tidy_living)
        entries = await self._bucket.list(layout.GONE, limit=keep + limit)
        await self._drop_twins(entries)
        if len(entries) < keep + limit:
            # All entries are known. While there are more of them, there is enough to remove.
            await self._enter({*map(runner_keys.runner_of, entries), *living}, limit)
        return await self._remove_all(entries[keep:]) if billed else sum(await each(entries[keep:], self._remove))

    async def _drop_twins(self, entries: list[str]) -> None:
        """Leaves each runner the one entry that its record names.

        Two processes may declare a runner dead. The later one, killed before it has removed its entry, leaves it here.
        """
        of_runner = Counter(map(runner_keys.runner_of, entries))
        await each([entry for entry in entries if of_runner[runner_keys.runner_of(entry)] > 1], self._gone_as_entered)

    async def _tidy_living(self, listed: tuple[RunnerId, RunnerRecord | None]) -> None:
        """Moves the record of a runner that is gone. An entry without a record is one of an earlier release."""
        runner, record = listed
        key = runner_keys.living_key(runner)
        if record is None:
            await self._index.doubt(key)
        elif record.gone_at is None:
            self._index.trust(key)
        else:
            await self._runners.retire_record(runner)

    async def _enter(self, known: set[RunnerId | None], limit: int) -> None:
        """Gives those that are gone and have no entry in `gone/` theirs: they went under an earlier release."""
        keys = await self._bucket.list(layout.RUNNERS, after=self._place, limit=SCAN_MAX)
        names = [(key, name) for key in keys if (name := runner_keys.runner_of(key)) is not None and name not in known]
        found = await each([name for _, name in names[:limit]], self._runners.gone_entry)
        await self._index.add([(entry, b"{}") for entry in found if entry is not None])
        if len(names) > limit:
            self._place = names[limit - 1][0]
        else:
            self._place = keys[-1] if len(keys) == SCAN_MAX else None

    async def _remove(self, entry: str) -> bool:
        runner = await self._removable(entry, None)
        if runner is None:
            return False
        await self._bucket.delete(runner_keys.runner_key(runner))
        await self._index.drop([entry])
        return True

    async def _remove_all(self, entries: list[str]) -> int:
        """The same by few requests: what runners hold is listed once, and records are deleted in bulk."""
        if not entries:
            return 0
        # Before the records are read: a runner that is gone takes nothing any more.
        held = [layout.held_entry(key) for key in await self._bucket.list(layout.HELD)]
        holders = {entry.runner for entry in held if entry is not None}
        judged = await each(entries, lambda entry: self._removable(entry, holders))
        await self._bucket.delete_many([runner_keys.runner_key(runner) for runner in judged if runner is not None])
        removed = [entry for entry, runner in zip(entries, judged, strict=True) if runner is not None]
        await self._index.drop(removed)
        return len(removed)

    async def _removable(self, entry: str, holders: set[RunnerId] | None) -> RunnerId | None:
        """The runner of that entry, if nothing of it is needed. `holders`: who holds something; None: not known."""
        runner = await self._gone_as_entered(entry)
        if runner is None:
            return None
        if holders is None:
            return None if await self._bucket.list(layout.held_prefix(runner), limit=1) else runner
        return None if runner in holders else runner

    async def _gone_as_entered(self, entry: str) -> RunnerId | None:
        """The runner of that entry, if its record names this entry. Otherwise the entry is left over."""
        runner = runner_keys.runner_of(entry)
        if runner is None:
            return None
        stands = await self._runners.gone_entry(runner)
        if stands is None:
            # Its record is removed already, or its verdict is on the way.
            await self._index.doubt(entry)
            return None
        if stands != entry:
            await self._index.drop([entry])
            return None
        return runner
