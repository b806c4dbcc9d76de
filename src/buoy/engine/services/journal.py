"""The journal: one per process, group commit over all its runs.

Invariants: writes that are queued while all lanes of the store are taken go into the next group, which is capped by
count and bytes. Outcomes are per run, and certain (`engine.services.commits`). At most one group per run is under way.
While the store gives no answer the journal keeps trying and drops nothing.
A write that no other write could join is committed where it is submitted, if the store can do that without waiting.
Handing each write to the journal's task costs a sequential step 50 % more (`benchmarks/speed_tricks.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sized
from typing import Any

from buoy.core.ids import RunId
from buoy.core.limits import COMMIT_BYTES_MAX
from buoy.core.log.weight import weight
from buoy.engine.services.begun_coroutine import BegunCoroutine
from buoy.engine.services.commits import commit_all_surely
from buoy.engine.services.unsent import Unsent
from buoy.errors import Problem
from buoy.ports.pace import Lanes
from buoy.ports.records import Committed, Outcome, Write
from buoy.ports.store import Store

_LOG = logging.getLogger("buoy.engine")

Done = Callable[[Outcome], None]
Group = list[tuple[Write, Done]]

# After so many delivered outcomes the loop turns: the code that they wake runs while the processor's cache still holds
# these runs. Measured with 2,000 runs: delivering 500 at a time is slower by a tenth or more.
_DELIVERED_AT_ONCE = 32


class Journal:
    """Takes writes from the executions of one process and commits them in groups, in the lanes of the store."""

    def __init__(self, store: Store, driven: Sized = ("some", "others")) -> None:
        self._store = store
        self._prompt = False
        self._lanes = Lanes()
        # The runs that are being driven. If there is only one, waiting for others would be for nothing.
        self._driven = driven
        self._at_it = False
        self._begun: tuple[BegunCoroutine, Write, Done] | None = None
        self._queue: deque[tuple[Write, Done]] = deque()
        # Writes that were handed to the journal's task and have no outcome yet. The last outcome may cause the next
        # write: the task is not idle then, but no other write is left to join.
        self._pending = 0
        # Groups under way beside each other, where the store has several lanes, and whose runs they are.
        self._carrying: set[asyncio.Task[None]] = set()
        self._carried: set[RunId] = set()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._worker: asyncio.Task[None] | None = None
        self.commits = 0
        self.errors = 0
        self.last_error: str | None = None
        # Where the store may be away for long: what it has not taken is kept on disk.
        self.unsent: Unsent | None = None
        # For displays: the store does not accept what this process writes.
        self.on_error: Callable[[str], None] | None = None

    def start(self) -> None:
        self._prompt, self._lanes = self._store.commits_inline, self._store.lanes
        self._worker = asyncio.get_running_loop().create_task(self._work(), name="buoy-journal")

    def submit(self, write: Write, done: Done) -> None:
        """Queues a write. `done` is called on the loop, once, when its outcome is certain."""
        if self._prompt and not self._at_it and len(self._driven) <= 1 and not self._pending:
            self._at_once(write, done)
        else:
            self._enqueue(write, done)

    def hold(self, write: Write) -> None:
        """Keeps what a run has recorded and will submit after its commit under way, if the store is away."""
        if self.unsent is not None and self.unsent.away:
            self.unsent.keep([write])

    @property
    def away(self) -> bool:
        return self.unsent is not None and self.unsent.away

    def _enqueue(self, write: Write, done: Done) -> None:
        self._queue.append((write, done))
        self._pending += 1
        self.hold(write)
        self._idle.clear()
        self._wake.set()

    def _at_once(self, write: Write, done: Done) -> None:
        """Commits here and now. What has to wait, or comes out unclear, is left to the journal's task."""
        commit = self._store.commit([write])
        self._at_it = True
        try:
            waits_for = commit.send(None)
        except StopIteration as end:
            (outcome,) = end.value
            if type(outcome) is not Committed:
                self._enqueue(write, done)
                return
            self.commits += 1
            self._deliver(done, outcome)
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
            self._note(error)
            self._enqueue(write, done)
        else:
            self._begun = (BegunCoroutine(commit, waits_for), write, done)
            self._pending += 1
            self._idle.clear()
            self._wake.set()
        finally:
            self._at_it = False

    async def commit(self, write: Write) -> bool:
        """Whether this write is in the log, however long the store stays away."""
        certain: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.submit(write, lambda outcome: None if certain.done() else certain.set_result(outcome))
        return isinstance(await certain, Committed)

    async def settled(self) -> None:
        """Waits until everything that was submitted has its outcome."""
        await self._idle.wait()

    async def close(self, *, patience_s: float | None = None) -> bool:
        """Ends the journal; what is queued is committed first, if the store lets it in that time. Whether it did."""
        self._closed = True
        self._wake.set()
        if self._worker is None:
            return True
        _, trying = await asyncio.wait([self._worker], timeout=patience_s)
        if trying:
            ending = [self._worker, *self._carrying]
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)
        return not trying

    async def _work(self) -> None:
        while True:
            if self._begun is not None and self._lanes.groups > 1:
                self._finish_beside(*self._begun)
            group = self._next_group()
            if group:
                await self._carry_on(group)
            elif self._begun is not None:
                # Before its outcome is delivered: that may begin another one.
                begun, self._begun = self._begun, None
                await self._finish(*begun)
            else:
                if not self._queue and not self._carrying:
                    self._idle.set()
                    if self._closed:
                        return
                self._wake.clear()
                await self._wake.wait()

    def _next_group(self) -> Group:
        """What is committed next: nothing, if all lanes are taken or all that waits belongs to runs under way."""
        group: Group = []
        if not self._queue or len(self._carrying) >= self._lanes.groups:
            return group
        queue, carried, passed_over = self._queue, self._carried, list[tuple[Write, Done]]()
        room = COMMIT_BYTES_MAX
        while queue and len(group) < self._lanes.writes:
            write = queue[0][0]
            if carried and write.run_id in carried:
                passed_over.append(queue.popleft())
                continue
            room -= weight(write.events, write.document)
            if room < 0 and group:
                break
            group.append(queue.popleft())
        queue.extendleft(reversed(passed_over))
        return group

    async def _carry_on(self, group: Group) -> None:
        """Commits a group: here, if the store has one lane; else beside the others."""
        if self._lanes.groups == 1:
            await self._carry(group)
            if self._queue:
                # A store may commit without ever giving way; steps, beats and other processes want their turn.
                await asyncio.sleep(0)
            return
        self._carried.update(write.run_id for write, _ in group)
        self._go_beside(self._carry(group))

    def _go_beside(self, commit: Coroutine[Any, Any, None]) -> None:
        """Other runs commit in the same time."""
        task = asyncio.get_running_loop().create_task(commit, name="buoy-journal-lane")
        self._carrying.add(task)
        task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._carrying.discard(task)
        self._wake.set()

    async def _carry(self, group: Group) -> None:
        outcomes = await self._commit([write for write, _ in group])
        self.commits += 1
        # Before the outcomes are delivered: a run that receives its outcome continues, and its next write need not
        # wait.
        self._carried.difference_update(write.run_id for write, _ in group)
        for place, ((_, done), outcome) in enumerate(zip(group, outcomes, strict=True), 1):
            self._pending -= 1
            self._deliver(done, outcome)
            if place % _DELIVERED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _finish_beside(self, rest: BegunCoroutine, write: Write, done: Done) -> None:
        self._carried.add(write.run_id)
        self._go_beside(self._finish(rest, write, done))
        self._begun = None

    async def _finish(self, rest: BegunCoroutine, write: Write, done: Done) -> None:
        """A commit that was started at once, and then had to wait."""
        try:
            outcomes: list[Outcome] = await rest
            if type(outcomes[0]) is not Committed:
                outcomes = await self._commit([write])
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
            self._note(error)
            outcomes = await self._commit([write], doubt=error)
        self.commits += 1
        self._carried.discard(write.run_id)
        self._pending -= 1
        self._deliver(done, outcomes[0])

    def _deliver(self, done: Done, outcome: Outcome) -> None:
        """One run's trouble must not end the journal of all."""
        try:
            done(outcome)
        except Exception as error:  # noqa: BLE001 - logged with its traceback, and shown among the troubles
            _LOG.exception("after a commit")
            self._note(error)

    async def _commit(self, writes: list[Write], doubt: Exception | None = None) -> list[Outcome]:
        """The certain outcome of each write, however long the store stays away."""

        def unclear(error: Exception) -> None:
            self._note(error)
            if self.unsent is not None:
                self.unsent.keep([*writes, *(write for write, _ in self._queue)])

        outcomes = await commit_all_surely(self._store, writes, doubt=doubt, tries=None, note=unclear)
        if self.unsent is not None:
            self.unsent.arrived(writes)
        return outcomes

    def _note(self, error: Exception) -> None:
        self.errors += 1
        self.last_error = str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
        if self.on_error is not None:
            self.on_error(self.last_error)
