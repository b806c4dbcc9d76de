"""The journal: one per process, group commit over all its runs.

Invariants: what is queued while one commit is being synced goes into the next; outcomes are per run; a write is only
called lost after its place in the log was read back and somebody else's nonce was found there. While the store gives
no answer the journal keeps trying: nothing that it took is dropped.
A write that nobody else could join is committed where it is submitted, if the store can do that without waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sized

from buoy.core.limits import COMMIT_WRITES_MAX
from buoy.engine.begun import Begun
from buoy.errors import Problem
from buoy.ports import Committed, FencedOut, Outcome, Store, Write

_LOG = logging.getLogger("buoy.engine")

Done = Callable[[Outcome], None]

# So many outcomes are told, then the loop turns: what they let go on runs while the processor's cache still holds these
# runs. Measured with 2,000 runs: telling 500 at a time is slower by a tenth or more.
_TOLD_AT_ONCE = 32
_PAUSE_FIRST_S = 0.05
_PAUSE_MAX_S = 5.0


class Journal:
    """Takes writes from the executions of one process and commits them in groups, one group at a time."""

    def __init__(self, store: Store, driven: Sized = ("some", "others")) -> None:
        self._store = store
        self._prompt = False
        # The runs that are being driven. If there is only one, waiting for others would be for nothing.
        self._driven = driven
        self._at_it = False
        self._begun: tuple[Begun, Write, Done] | None = None
        self._queue: deque[tuple[Write, Done]] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._worker: asyncio.Task[None] | None = None
        self.commits = 0
        self.errors = 0
        self.last_error: str | None = None
        # For whoever wants to show that the store does not take what this process writes.
        self.on_error: Callable[[str], None] | None = None

    def start(self) -> None:
        self._prompt = self._store.prompt
        self._worker = asyncio.get_running_loop().create_task(self._work(), name="buoy-journal")

    def submit(self, write: Write, done: Done) -> None:
        """Queues a write. `done` is called on the loop, once, when its outcome is certain."""
        if self._prompt and not self._at_it and len(self._driven) <= 1 and self._idle.is_set():
            self._at_once(write, done)
        else:
            self._enqueue(write, done)

    def _enqueue(self, write: Write, done: Done) -> None:
        self._queue.append((write, done))
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
            self._tell(done, outcome)
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
            self._note(error)
            self._enqueue(write, done)
        else:
            self._begun = (Begun(commit, waits_for), write, done)
            self._idle.clear()
            self._wake.set()
        finally:
            self._at_it = False

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
            self._worker.cancel()
            await asyncio.wait([self._worker])
        return not trying

    async def _work(self) -> None:
        while True:
            while not self._queue:
                if self._begun is not None:
                    await self._finish(*self._begun)
                    continue
                self._idle.set()
                if self._closed:
                    return
                self._wake.clear()
                await self._wake.wait()
            group = [self._queue.popleft() for _ in range(min(len(self._queue), COMMIT_WRITES_MAX))]
            outcomes = await self._commit([write for write, _ in group])
            self.commits += 1
            for place, ((_, done), outcome) in enumerate(zip(group, outcomes, strict=True), 1):
                self._tell(done, outcome)
                if place % _TOLD_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if self._queue:
                # A store may commit without ever giving way; steps, beats and other processes want their turn.
                await asyncio.sleep(0)

    async def _finish(self, rest: Begun, write: Write, done: Done) -> None:
        """A commit that was begun at once, and then had to wait."""
        try:
            outcomes: list[Outcome] = await rest
            if type(outcomes[0]) is not Committed:
                outcomes = await self._commit_surely([write])
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
            self._note(error)
            outcomes = await self._commit_surely([write])
        self._begun = None
        self.commits += 1
        self._tell(done, outcomes[0])

    def _tell(self, done: Done, outcome: Outcome) -> None:
        """One run's trouble must not end the journal of all."""
        try:
            done(outcome)
        except Exception as error:  # noqa: BLE001 - logged with its traceback, and shown among the troubles
            _LOG.exception("after a commit")
            self._note(error)

    async def _commit(self, writes: list[Write]) -> list[Outcome]:
        """The certain outcome of each write, however long the store stays away."""
        try:
            answers = await self._store.commit(writes)
            if all(type(answer) is Committed for answer in answers):
                return answers
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
            self._note(error)
        return await self._commit_surely(writes)

    async def _commit_surely(self, writes: list[Write]) -> list[Outcome]:
        """After an answer that was unclear or bad: what happened is read back before anything is tried again."""
        outcomes: dict[int, Outcome] = {}
        pending = await self._still_open(list(enumerate(writes)), outcomes)
        pause_s = _PAUSE_FIRST_S
        while pending:
            try:
                answers = await self._store.commit([write for _, write in pending])
                for (place, write), answer in zip(pending, answers, strict=True):
                    outcomes[place] = answer if isinstance(answer, Committed) else await self._confirm(write, answer)
                break
            except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
                self._note(error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            pending = await self._still_open(pending, outcomes)
        return [outcomes[place] for place in range(len(writes))]

    async def _still_open(
        self, pending: list[tuple[int, Write]], outcomes: dict[int, Outcome]
    ) -> list[tuple[int, Write]]:
        """Reads back what an unclear commit may have done; what is not there is tried again."""
        left: list[tuple[int, Write]] = []
        for place, write in pending:
            if place in outcomes:
                continue
            try:
                found = await self._read_back(write)
            except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
                self._note(error)
                found = None
            if found is None:
                left.append((place, write))
            else:
                outcomes[place] = found
        return left

    async def _confirm(self, write: Write, answer: FencedOut) -> Outcome:
        """A store may call the true winner a loser (a write that was sent twice): its nonce tells."""
        return await self._read_back(write) or answer

    async def _read_back(self, write: Write) -> Outcome | None:
        """Whose commit stands in our place: ours, somebody else's, or nobody's (None)."""
        there = await self._store.events(write.run_id, after=write.after_seq, limit=1)
        if not there:
            return None
        if there[0].nonce == write.events[0].nonce:
            return Committed(head_seq=write.events[-1].seq)
        return FencedOut(head_seq=there[0].seq)

    def _note(self, error: Exception) -> None:
        self.errors += 1
        self.last_error = str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
        if self.on_error is not None:
            self.on_error(self.last_error)
