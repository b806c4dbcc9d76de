"""Claims in objects: who gets which due task.

Invariants: one compare-and-swap of the run's `state.json` takes a task, so one claimer gets it; `held/` is written
before. Candidates come from `tasks/` in order of their due time, queues in turn, and from `wake/`. What they say is
only a hint; the run decides. A claim whose answer was lost is owed to its runner and delivered with its next claim.
Otherwise the task would wait forever, because its holder does not know that it has it.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import TASKS_CLAIM_MAX
from buoy.errors import StoreUnusable, Unavailable
from buoy.ports.records import Broken, Ended, Released, Task, Wants
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.inbox.messages import Inboxes
from buoy.stores.objects.index.entries import Index, each
from buoy.stores.objects.records import (
    StoredRun,
    TaskKind,
    TaskState,
    WorkHint,
    claimed_task,
    entry_of,
    fits,
    next_task,
    passed,
)
from buoy.stores.objects.runners.registry import Runners
from buoy.stores.objects.runs import Runs
from buoy.stores.store_clock import StoreClock
from buoy.stores.unreadable import GARBLED

PAGE = 256
# Entries of one queue that one call looks through; those of others may stand before one's own.
PAGES_MAX = 40
HINTS_MAX = 10_000
MOVES_MAX = 20


class Woken(NamedTuple):
    """A run with wake-ups for messages."""

    run_id: RunId
    entries: list[layout.WakeEntry]


Candidate: TypeAlias = layout.TaskEntry | Woken


class Claims:
    """Takes tasks and gives them back."""

    def __init__(
        self, bucket: Bucket, index: Index, runs: Runs, inboxes: Inboxes, runners: Runners, clock: StoreClock
    ) -> None:
        self._bucket = bucket
        self._index = index
        self._runs = runs
        self._inboxes = inboxes
        self._runners = runners
        self._clock = clock
        self._hints: dict[str, WorkHint] = {}
        # When the first task comes due that the last look met and left.
        self.next_due: float | None = None
        # Taken or perhaps taken, but not yet returned to the runner.
        self._owed: dict[RunnerId, dict[RunId, TaskState]] = {}

    async def claim(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        limit = min(limit, TASKS_CLAIM_MAX)
        owed = self._owed.setdefault(runner, {})
        taken: dict[RunId, Task] = {}
        try:
            await self._deliver(runner, taken)
            async with self._index.gathered():
                await self._look(runner, wants, limit, taken)
        except (Unavailable, StoreUnusable) as error:
            if not taken:
                raise
            self._index.note(error)
        # Without an answer the runner gets nothing: what was taken for it is owed until it is known to live.
        if taken and await self._runners.why_not_living(runner) is not None:
            await each(list(taken), lambda run_id: self._give_back(run_id, runner))
            taken.clear()
        for run_id in taken:
            owed.pop(run_id, None)
        if not owed:
            self._owed.pop(runner, None)
        return list(taken.values())

    def next_due_in_s(self) -> float:
        return math.inf if self.next_due is None else self.next_due - self._clock.now()

    async def _deliver(self, runner: RunnerId, taken: dict[RunId, Task]) -> None:
        """What an earlier call took without being able to say so."""
        for run_id, task in list(self._owed[runner].items()):
            view = await self._runs.look(run_id)
            if isinstance(view, Broken):
                continue
            if view is not None and view.task.version == task.version and view.task.holder == runner:
                taken[run_id] = claimed_task(view, view.task, self._clock.now())
            else:
                del self._owed[runner][run_id]

    async def _look(self, runner: RunnerId, wants: Wants, limit: int, taken: dict[RunId, Task]) -> None:
        """Page after page of all queues, until enough is taken."""
        now, self.next_due = self._clock.now(), None
        woken = [Woken(run_id, entries) for run_id, entries in (await self._inboxes.woken()).items()]
        places: dict[str, str | None] = dict.fromkeys(wants.queues)
        for turn in range(PAGES_MAX):
            pages: list[list[Candidate]] = [list(woken)] if turn == 0 else []
            for queue in list(places):
                found, places[queue] = await self._page(queue, places[queue], wants, now)
                pages.append(list(found))
                if places[queue] is None:
                    del places[queue]
            waiting = _in_turn(pages)
            if turn == 0 and waiting and not await self._runners.lives(runner):
                return
            while waiting and len(taken) < limit:
                need = limit - len(taken)
                await self._take_some(runner, wants, now, waiting[:need], taken)
                waiting = waiting[need:]
            if len(taken) >= limit or not places:
                return

    async def _page(
        self, queue: str, after: str | None, wants: Wants, now: float
    ) -> tuple[list[layout.TaskEntry], str | None]:
        """Entries of one queue that are due and of a kind that is wanted, and where to continue.

        What is due at once comes before what is due by the clock; where it fills the page, neither starves the other.
        """
        prefix = layout.queue_prefix(queue)
        keys = await self._bucket.list(prefix, after=after, limit=PAGE)
        entries = [entry for key in keys if (entry := layout.task_entry(key)) is not None]
        place = keys[-1] if len(keys) == PAGE else None
        if place is not None and entries and entries[-1].at_once:
            by_clock = await self._bucket.list(prefix, after=layout.after_at_once(queue), limit=PAGE)
            entries += [entry for key in by_clock if (entry := layout.task_entry(key)) is not None]
        found: list[layout.TaskEntry] = []
        for entry in entries:
            if not entry.at_once and entry.due_us > layout.microseconds(now):
                due_at = entry.due_us / 1e6
                self.next_due = due_at if self.next_due is None else min(self.next_due, due_at)
                place = place if entry.key not in keys else None
                break
            hint = await self._hint(entry)
            if hint is None or fits(hint, wants):
                found.append(entry)
        return sorted(found, key=lambda entry: entry.due_us), place

    async def _hint(self, entry: layout.TaskEntry) -> WorkHint | None:
        """One read for each kind of work that this process meets."""
        hint = self._hints.get(entry.kind)
        if hint is None:
            found = await self._bucket.get(entry.key)
            if found is None:
                return None
            if len(self._hints) >= HINTS_MAX:
                self._hints.clear()
            try:
                hint = self._hints[entry.kind] = msgspec.json.decode(found[0], type=WorkHint)
            except GARBLED:
                return None  # only a hint: the run itself says what it is
        return hint

    async def _take_some(
        self, runner: RunnerId, wants: Wants, now: float, candidates: list[Candidate], taken: dict[RunId, Task]
    ) -> None:
        by_run: dict[RunId, list[Candidate]] = {}
        for candidate in candidates:
            by_run.setdefault(candidate.run_id, []).append(candidate)

        async def one_run(run_id: RunId) -> None:
            for candidate in by_run[run_id]:
                if run_id not in taken:
                    await self._take(runner, wants, now, candidate, taken)

        await each(by_run, one_run)
        for run_id in by_run:
            # In the order of the queue, not in that of the answers.
            if run_id in taken:
                taken[run_id] = taken.pop(run_id)

    async def _take(
        self, runner: RunnerId, wants: Wants, now: float, candidate: Candidate, taken: dict[RunId, Task]
    ) -> None:
        run_id = candidate.run_id
        view = self._fresh(candidate) or await self._runs.look(run_id)
        if isinstance(view, Broken):
            return
        if view is None:
            await self._doubt(candidate)
            return
        if isinstance(candidate, Woken):
            due = await self._woken(view, candidate, now)
        else:
            due = await self._due(view, candidate, now)
        document = view.document
        if due is None or document.queue not in wants.queues or not fits(document, wants):
            return
        task = next_task(
            view.task, "held", holder=runner, due_at=due.due_at, at_once=True, cause=due.cause, evidence=due.evidence
        )
        owed = self._owed.setdefault(runner, {})
        owed[run_id] = task
        if await self._runs.move(view, task) is None:
            owed.pop(run_id, None)
            return
        self._runs.seen.pop(run_id, None)
        by_clock = due.kind == "due" and not due.at_once and not self._clock.own
        taken[run_id] = claimed_task(view, task, now, by_clock=by_clock)

    def _fresh(self, candidate: Candidate) -> StoredRun | None:
        """The run as this process itself made it due a moment ago. If it has moved on since, the claim fails."""
        view = None if isinstance(candidate, Woken) else self._runs.known_lately(candidate.run_id)
        if view is None or isinstance(candidate, Woken) or view.etag is None:
            return None
        return (
            view if view.task.kind == "due" and view.task.version == candidate.version == view.saved_version else None
        )

    async def _doubt(self, candidate: Candidate) -> None:
        entries = candidate.entries if isinstance(candidate, Woken) else [candidate]
        for entry in entries:
            await self._index.doubt(entry.key)

    async def _due(self, view: StoredRun, entry: layout.TaskEntry, now: float) -> TaskState | None:
        """The task, if this entry is the one that it has and its time has come."""
        if passed(entry.key, entry.version, view):
            await self._index.drop([entry.key])
            return None
        if entry.version != view.task.version:
            await self._index.doubt(entry.key)
            return None
        self._index.trust(entry.key)
        return view.task if view.task.due(now) else None

    async def _woken(self, view: StoredRun, woken: Woken, now: float) -> TaskState | None:
        """The task as due at once, if it has no holder and there is an unseen message."""
        task = view.task
        if task.kind == "none":
            # A runner that brings an ended run back reads its whole inbox.
            await self._index.drop([entry.key for entry in woken.entries])
            return None
        if task.kind == "held" or not await self._inboxes.unseen(view, woken.entries, task.seen):
            return None
        if task.due(now):
            return task
        return msgspec.structs.replace(task, due_at=now, at_once=True, cause="woken", evidence={})

    async def _give_back(self, run_id: RunId, runner: RunnerId) -> None:
        self._owed.get(runner, {}).pop(run_id, None)
        view = await self._runs.look(run_id)
        if isinstance(view, StoredRun) and view.task.kind == "held" and view.task.holder == runner:
            task = view.task
            due_at = task.due_at or 0.0
            await self._runs.move(
                view, next_task(task, "due", due_at=due_at, at_once=True, cause=task.cause, evidence=task.evidence)
            )

    async def release(self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None) -> bool:
        """Gives a task back without an event. False if the runner does not hold it."""
        for _ in range(MOVES_MAX):
            view = await self._runs.load(run_id)
            if view is None or view.task.kind != "held" or view.task.holder != runner:
                return False
            if head_seq not in (None, view.head_seq):
                return False
            if isinstance(change, Ended):
                if await self._end(view):
                    return True
                continue
            seen = max(change.seen, self._runs.seen.get(run_id, 0))
            due_at, at_once = self._clock.place(change)
            kind: TaskKind = "parked" if due_at is None else "due"
            task = next_task(
                view.task, kind, due_at=due_at, at_once=at_once, cause=change.cause, evidence=change.evidence, seen=seen
            )
            if await self._runs.move(view, task) is not None:
                self._runs.seen.pop(run_id, None)
                return True
        raise Unavailable(f"the task of {run_id} is changed by others all the time; try again")

    async def _end(self, view: StoredRun) -> bool:
        """The run ended before, and nothing is owed to anybody any more. The entry that says so is the truth of it.

        `state.json` is left behind: the log has the rest, and lists read that entry.
        """
        if not view.document.ended:
            return await self._runs.move(view, next_task(view.task, "none")) is not None
        await self._runs.settle(view)
        self._runs.seen.pop(view.run_id, None)
        held = entry_of(view.document, view.task)
        active = layout.active_key(view.run_id, view.document.created_at, view.task.active_seq)
        await self._index.drop([None if held is None else held[0], active])
        return True


def _in_turn(pages: list[list[Candidate]]) -> list[Candidate]:
    """One of each in turn, so that a full queue cannot starve another."""
    depth = max(map(len, pages), default=0)
    return [page[turn] for turn in range(depth) for page in pages if turn < len(page)]
