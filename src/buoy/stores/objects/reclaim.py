"""Reclaim in objects: what the dead held is made due again, and runs that no process will ever drive are found.

Invariants: every step can be repeated after a crash at any point, by any process. A run that cannot be read is passed
over and noted (`Runs.look`). A claim that a dead runner had under way is made to fail by touching its run's
`state.json`. Each active run has an entry in `held/`, `tasks/` or `parked/`: an active run without one is a suspect,
found by listings alone. A call of `orphans` reads all that the dead hold, the suspects, and a few of the other active
runs. It begins where the last call ended. So it costs a listing for each thousand entries, and a bounded number of
reads.
"""

from __future__ import annotations

from collections import Counter

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.times import StoreTime, run_time
from buoy.errors import Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Broken, Evidence, Orphan
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Changed
from buoy.stores.objects.index.entries import Index, each
from buoy.stores.objects.records import StoredRun, TaskState, entry_of, next_task, passed
from buoy.stores.objects.runners.registry import Runners
from buoy.stores.objects.runs import Runs
from buoy.stores.unreadable import UNREADABLE, broken

MOVES_MAX = 20
# Suspects that one call of `orphans` reads. A store of an earlier release, without entries for parked runs, has many.
SUSPECTS_MAX = 1_000
# Active runs that one call reads though they have an entry: an entry may be left over from an earlier state.
LOOKS_MAX = 8


class Sweeps:
    """Buries runners, finds and adopts orphans."""

    def __init__(self, bucket: Bucket, index: Index, runs: Runs, runners: Runners, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._runs = runs
        self._runners = runners
        self._clock = clock
        # Where the next look at suspects, and at the others, begins.
        self._suspect_place: str | None = None
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

        async with self._index.gathered():
            return sum(await each(by_run.values(), one_run))

    async def _held(self, prefix: str) -> list[layout.HeldEntry]:
        keys = await self._bucket.list(prefix)
        return [entry for key in keys if (entry := layout.held_entry(key)) is not None]

    async def _free(self, entry: layout.HeldEntry, cause: str, evidence: Evidence) -> bool:
        """Makes due what this entry's runner holds. Whether it held it."""
        for number in range(MOVES_MAX):
            view = await (self._runs.look(entry.run_id) if number else self._runs.look_again(entry.run_id))
            if isinstance(view, Broken):
                return False  # its entry stays, so that it is found again once the run can be read
            if view is None:
                await self._index.doubt(entry.key)
                return False
            if _holder(view) == entry.runner:
                # Sweeps of several processes release it in the same words: one of them has done it.
                if await self._runs.move(view, self._due_again(view, cause, evidence), alike=True) is not None:
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
        living = await self._living({entry.runner for entry in held})
        dead = [entry for entry in held if entry.runner not in living]
        found = {orphan.run_id: orphan for orphan in await each(dead, self._left_behind) if orphan is not None}
        if len(found) < limit:
            await self._scan(living, {entry.key for entry in held}, limit, found)
        return list(found.values())[:limit]

    async def _living(self, holders: set[RunnerId]) -> set[RunnerId]:
        """Those of the holders that live. One that is not among the listed may have registered since: it is read."""
        if not holders:
            return set()
        fleet = await self._runners.fleet.look(glance=True, among=holders)
        living = {runner for runner, record in fleet.items() if record is not None and record.gone_at is None}
        return (holders & living) | await self._runners.living(holders - living)

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

    async def _scan(self, living: set[RunnerId], listed: set[str], limit: int, found: dict[RunId, Orphan]) -> None:
        """Judges the active runs without an entry, and a few of those with one. `listed`: the keys of `held/`."""
        keys = await self._bucket.list(layout.ACTIVE)
        entries = [entry for key in keys if (entry := layout.run_entry(key)) is not None]
        if not entries:
            return
        listed.update(*[await self._bucket.list(prefix) for prefix in (layout.TASKS, layout.PARKED)])
        announced = Counter(map(_announced, listed))
        await self._tidy_parked(listed, announced, {entry.run_id for entry in entries})
        times = Counter(entry.run_id for entry in entries)
        suspects = [entry for entry in entries if entry.run_id not in announced or times[entry.run_id] > 1]
        others = [entry for entry in entries if entry.run_id in announced and times[entry.run_id] == 1]
        part, self._suspect_place = _from(suspects, self._suspect_place, SUSPECTS_MAX)
        judged = await self._judge_all(part, living, listed, limit, found)
        if judged < len(part):
            self._suspect_place = part[judged - 1].key
            return
        part, self._place = _from(others, self._place, LOOKS_MAX)
        await self._judge_all(part, living, listed, limit, found)

    async def _tidy_parked(self, listed: set[str], announced: Counter[RunId | None], active: set[RunId]) -> None:
        """Removes entries of `parked/` that a crash left behind. Claims read `tasks/` only, and deaths `held/`."""
        found = [entry for key in sorted(listed) if (entry := layout.parked_entry(key)) is not None]
        doubtful = [entry for entry in found if entry.run_id not in active or announced[entry.run_id] > 1]
        for entry in doubtful[:LOOKS_MAX]:
            view = await self._runs.look(entry.run_id)
            if view is None:
                await self._index.doubt(entry.key)
            elif not isinstance(view, Broken) and passed(entry.key, entry.version, view):
                await self._index.drop([entry.key])

    async def _judge_all(
        self, entries: list[layout.RunEntry], living: set[RunnerId], listed: set[str], limit: int,
        found: dict[RunId, Orphan],
    ) -> int:  # fmt: skip
        """Adds the orphans among these, until there are enough. How many were judged."""

        async def one(entry: layout.RunEntry) -> Orphan | None:
            view = await self._active(entry)
            return None if view is None else await self._judge_one(view, living, listed)

        for begin in range(0, len(entries), 64):
            part = entries[begin : begin + 64]
            found.update({orphan.run_id: orphan for orphan in await each(part, one) if orphan is not None})
            if len(found) >= limit:
                return begin + len(part)
        return len(entries)

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

    async def _judge_one(self, view: StoredRun, living: set[RunnerId], listed: set[str]) -> Orphan | None:
        """One of many: what is wrong with it is noted, and hides no other. Its entry is written if it has none."""
        try:
            orphan = await self._judge(view, living, listed)
            if orphan is None and view.task.kind in ("held", "parked") and await self._missing(view, listed):
                entry = entry_of(view.document, view.task)
                await self._index.add([] if entry is None else [entry])
            return orphan
        except UNREADABLE as error:
            self._runs.met.note(broken("run", view.run_id, layout.run_prefix(view.run_id), error))
            return None

    async def _judge(self, view: StoredRun, living: set[RunnerId], listed: set[str]) -> Orphan | None:
        """Whether no runner will ever drive this run."""
        task, holder = view.task, _holder(view)
        why: str | None = None
        if task.kind == "none":
            # What has no log is no run of ours, though it has a document.
            why = None if view.document.ended or not view.head_seq else "it has no task"
        elif holder is not None:
            reason = None if holder in living else await self._runners.why_not_living(holder)
            why = None if reason is None else f"held by {holder}, which {reason}"
        elif task.kind == "due" and await self._missing(view, listed):
            why = "its task is in no queue"
        elif await self._asleep(view):
            why = "it has a message or a time that nothing will wake it for"
        return None if why is None else Orphan(view.run_id, holder, why, no_task=task.kind == "none")

    async def _missing(self, view: StoredRun, listed: set[str]) -> bool:
        """Whether the run has not its entry. `listed`: keys that certainly are there."""
        entry = entry_of(view.document, view.task)
        return entry is None or (entry[0] not in listed and await self._bucket.get(entry[0]) is None)

    async def _asleep(self, view: StoredRun) -> bool:
        """Whether a task that waits has something to do that no entry tells anybody about."""
        document = view.document
        now = run_time(StoreTime(self._clock.now()), taken_at=view.updated_at, dated_at=document.updated_at)
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
            found = await self._judge(view, set(), set())
            if found is None or found.holder != orphan.holder:
                return False
            lost = view.task.kind == "none"
            task = self._due_again(view, "taken_over", {"orphan": found.why}, renew=lost)
            if await self._runs.move(view, task, alike=True) is not None:
                return True
        raise Unavailable(f"the task of {orphan.run_id} is changed by others all the time; try again")


def _announced(key: str) -> RunId | None:
    """The run that an entry of `held/`, `tasks/` or `parked/` announces."""
    entry: layout.HeldEntry | layout.TaskEntry | layout.ParkedEntry | None
    if key.startswith(layout.HELD):
        entry = layout.held_entry(key)
    else:
        entry = layout.task_entry(key) if key.startswith(layout.TASKS) else layout.parked_entry(key)
    return None if entry is None else entry.run_id


def _from(entries: list[layout.RunEntry], place: str | None, number: int) -> tuple[list[layout.RunEntry], str | None]:
    """So many entries after that place, round the end if need be; and the place of the next ones."""
    later = [entry for entry in entries if place is None or entry.key > place]
    earlier = entries[: len(entries) - len(later)]
    part = [*later, *earlier][:number]
    return part, part[-1].key if part and len(part) < len(entries) else None


def _holder(view: StoredRun) -> RunnerId | None:
    return view.task.holder if view.task.kind == "held" else None
