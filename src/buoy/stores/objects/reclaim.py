"""Sweep in objects: what the dead held is made due again, and what nobody cares for is found.

Invariants: every step can be repeated after a crash at any point, by anybody. A run that cannot be read is passed over
and noted (`Runs.look`). A claim that a buried runner had under
way is made to fail by touching its run's `state.json`. Every call of `orphans` looks at all that the dead hold, and
at a part of all active runs, going on from where the last call ended.
"""

from __future__ import annotations

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.times import StoreTime, run_time
from buoy.errors import Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Broken, Evidence, Orphan
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed
from buoy.stores.objects.index import Index, each
from buoy.stores.objects.records import StoredRun, TaskState, entry_of, next_task, passed
from buoy.stores.objects.runners import Runners
from buoy.stores.objects.runs import Runs
from buoy.stores.unreadable import UNREADABLE, broken

MOVES_MAX = 20
# Active runs that one call of `orphans` looks at: a million waiting runs must not make a sweep expensive.
SCAN_MAX = 1_000


class Sweeps:
    """Buries runners, finds and adopts orphans."""

    def __init__(self, bucket: Bucket, index: Index, runs: Runs, runners: Runners, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._runs = runs
        self._runners = runners
        self._clock = clock
        self._place: str | None = None

    async def declare_dead(
        self, runner: RunnerId, why: str, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        if not await self._runners.declare_gone(runner, why, beat_number):
            return None
        by_run: dict[RunId, list[layout.HeldEntry]] = {}
        for entry in await self._held(layout.held_prefix(runner)):
            by_run.setdefault(entry.run_id, []).append(entry)

        async def one_run(entries: list[layout.HeldEntry]) -> bool:
            freed = [await self._free(entry, cause, evidence) for entry in entries]
            return any(freed)

        return sum(await each(by_run.values(), one_run))

    async def _held(self, prefix: str) -> list[layout.HeldEntry]:
        keys = await self._bucket.list(prefix)
        return [entry for key in keys if (entry := layout.held_entry(key)) is not None]

    async def _free(self, entry: layout.HeldEntry, cause: str, evidence: Evidence) -> bool:
        """Makes due what this entry's runner holds. Whether it held it."""
        for _ in range(MOVES_MAX):
            view = await self._runs.look(entry.run_id)
            if isinstance(view, Broken):
                return False  # its entry stays, so that it is found again once the run can be read
            if view is None:
                await self._index.doubt(entry.key)
                return False
            if _holder(view) == entry.runner:
                if await self._runs.move(view, self._due_again(view, cause, evidence)) is not None:
                    await self._index.drop([entry.key])
                    return True
            elif passed(entry.key, entry.version, view):
                await self._index.drop([entry.key])
                return False
            elif await self._stop(entry, view):
                return False
        raise Unavailable(f"the task of {entry.run_id} is changed by others all the time; try again")

    async def _stop(self, entry: layout.HeldEntry, view: StoredRun) -> bool:
        """Makes a claim fail that was announced but not yet made. False: look again."""
        if entry.version.seq > view.task.seq:
            # Announced by a commit, which only the log can fence. If it comes, `orphans` finds it.
            await self._index.doubt(entry.key)
            return True
        try:
            await self._runs.save(view)
        except Changed:
            return False
        await self._index.drop([entry.key])
        return True

    def _due_again(self, view: StoredRun, cause: str, evidence: Evidence, *, renew: bool = False) -> TaskState:
        """Work that comes back is due at once, at its own place in the queue if it had one."""
        now = self._clock.now()
        due_at = now if view.task.due_at is None else min(view.task.due_at, now)
        return next_task(view.task, "due", due_at=due_at, at_once=True, cause=cause, evidence=evidence, renew=renew)

    async def orphans(self, limit: int) -> list[Orphan]:
        limit = max(1, min(limit, RUNS_PAGE_MAX))
        held = await self._held(layout.HELD)
        living = await self._runners.living({entry.runner for entry in held})
        dead = [entry for entry in held if entry.runner not in living]
        found = {orphan.run_id: orphan for orphan in await each(dead, self._left_behind) if orphan is not None}
        if len(found) < limit:
            announced = {(entry.runner, entry.run_id) for entry in held}
            await self._scan(living, announced, limit, found)
        return list(found.values())[:limit]

    async def _left_behind(self, entry: layout.HeldEntry) -> Orphan | None:
        view = await self._runs.look(entry.run_id)
        if isinstance(view, Broken):
            return None
        if view is not None and _holder(view) == entry.runner:
            why = await self._runners.why_not_living(entry.runner)
            return None if why is None else Orphan(entry.run_id, entry.runner, f"held by {entry.runner}, which {why}")
        if view is not None and passed(entry.key, entry.version, view):
            await self._index.drop([entry.key])
        elif await self._runners.why_not_living(entry.runner) is not None:
            await self._index.doubt(entry.key)
        return None

    async def _scan(
        self, living: set[RunnerId], announced: set[tuple[RunnerId, RunId]], limit: int, found: dict[RunId, Orphan]
    ) -> None:
        """Looks through `active/` from where the last scan ended."""
        keys = await self._bucket.list(layout.ACTIVE, after=self._place, limit=SCAN_MAX)
        if self._place is not None and len(keys) < SCAN_MAX:
            begun_at = self._place
            again = await self._bucket.list(layout.ACTIVE, limit=SCAN_MAX - len(keys))
            keys += [key for key in again if key <= begun_at]
        self._place = keys[-1] if len(keys) == SCAN_MAX else None

        async def one(key: str) -> Orphan | None:
            entry = layout.run_entry(key)
            view = None if entry is None else await self._active(entry)
            return None if view is None else await self._judge_one(view, living, announced)

        for begin in range(0, len(keys), 64):
            part = keys[begin : begin + 64]
            found.update({orphan.run_id: orphan for orphan in await each(part, one) if orphan is not None})
            if len(found) >= limit:
                self._place = part[-1]
                return

    async def _active(self, entry: layout.RunEntry) -> StoredRun | None:
        """The run, if this entry is the one that it has now."""
        view = await self._runs.look(entry.run_id)
        if isinstance(view, Broken):
            return None
        if view is None:
            await self._index.doubt(entry.key)
            return None
        ended = view.task.kind == "none" and view.document.ended
        valid = layout.active_key(view.run_id, view.document.created_at, view.task.active_seq)
        if entry.key == valid and not ended:
            self._index.trust(entry.key)
            return view
        if entry.seq <= view.head_seq:
            await self._index.drop([entry.key])
        else:
            await self._index.doubt(entry.key)
        return None

    async def _judge_one(
        self, view: StoredRun, living: set[RunnerId], announced: set[tuple[RunnerId, RunId]] | None
    ) -> Orphan | None:
        """One of many: what is wrong with it is noted, and hides no other."""
        try:
            return await self._judge(view, living, announced)
        except UNREADABLE as error:
            self._runs.met.note(broken("run", view.run_id, layout.run_prefix(view.run_id), error))
            return None

    async def _judge(
        self, view: StoredRun, living: set[RunnerId], announced: set[tuple[RunnerId, RunId]] | None
    ) -> Orphan | None:
        """Whether nobody will ever drive this run. `announced` None: the entry of a holder is not looked for."""
        task, holder = view.task, _holder(view)
        why: str | None = None
        if task.kind == "none":
            # What has no log is no run of ours, though it has a document.
            why = None if view.document.ended or not view.head_seq else "it has no task"
        elif holder is not None:
            reason = None if holder in living else await self._runners.why_not_living(holder)
            why = None if reason is None else f"held by {holder}, which {reason}"
            if why is None and announced is not None and (holder, view.run_id) not in announced:
                await self._announce(view)
        elif task.kind == "due" and await self._missing(view):
            why = "its task is in no queue"
        elif await self._asleep(view):
            why = "it has a message or a time that nothing will wake it for"
        return None if why is None else Orphan(view.run_id, holder, why, no_task=task.kind == "none")

    async def _announce(self, view: StoredRun) -> None:
        """Writes the `held/` entry of a living holder again, so that its burial will find the run."""
        entry = entry_of(view.document, view.task)
        if entry is not None:
            await self._index.add([entry])

    async def _missing(self, view: StoredRun) -> bool:
        entry = entry_of(view.document, view.task)
        return entry is None or await self._bucket.get(entry[0]) is None

    async def _asleep(self, view: StoredRun) -> bool:
        """Whether a task that waits has something to do that no entry tells anybody about."""
        document = view.document
        now = run_time(StoreTime(self._clock.now()), taken_at=view.updated_at, told_at=document.updated_at)
        if view.task.kind == "parked" and document.pause is None and not document.ended:
            overdue = document.wake_at is not None and document.wake_at <= now
            if overdue:
                return True
        if await self._runs.inbox_head(view) <= view.task.seen:
            return False
        woken = [layout.wake_entry(key) for key in await self._bucket.list(layout.wake_prefix(view.run_id))]
        return not any(entry is not None and entry.number > view.task.seen for entry in woken)

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        for _ in range(MOVES_MAX):
            view = await self._runs.load(orphan.run_id)
            if view is None:
                return False
            found = await self._judge(view, set(), None)
            if found is None or found.holder != orphan.holder:
                return False
            lost = view.task.kind == "none"
            task = self._due_again(view, "taken_over", {"orphan": found.why}, renew=lost)
            if await self._runs.move(view, task) is not None:
                return True
        raise Unavailable(f"the task of {orphan.run_id} is changed by others all the time; try again")


def _holder(view: StoredRun) -> RunnerId | None:
    return view.task.holder if view.task.kind == "held" else None
