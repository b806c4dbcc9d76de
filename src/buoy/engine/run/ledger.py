"""Ledger: the events of an execution's next commit, and what is to be done once they are durable.

Invariants: at most one commit is in flight, and events recorded during it go with the next one. Effects run when
everything recorded before them is durable, and never after `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import MOVES, check_move
from buoy.core.log.state import State
from buoy.core.log.storable import check_body
from buoy.ports.records import Committed, Held, Outcome, TaskChange, Write

if TYPE_CHECKING:
    from buoy.engine.run.host import Host

# Their parts were checked or encoded before: names when they were declared, values by the codec. To prove them again
# costs a step with a result of 100 KB 26 % more processor time (`benchmarks/speed_tricks.py`).
_PROVEN = frozenset({e.StepStarted, e.StepCompleted, e.JobOffered})


class Owner(Protocol):
    """The execution, as its ledger sees it."""

    def turn(self, work: Callable[..., None], *args: Any) -> None:
        """The run's own door: what a commit leads to happens behind it."""
        ...

    def held(self, error: Exception) -> None:
        """An effect failed. The others are due anyway."""
        ...

    def lost(self) -> None:
        """Another runner has the run."""
        ...


class Ledger:
    """Buffers the events of one owner of a run until they are committed."""

    def __init__(self, host: Host, run_id: RunId, state: State, owner: Owner) -> None:
        self.state = state
        self.closed = False
        # Task change of the next commit. The first commit makes the run's task ours.
        self.task_change: TaskChange | None = Held(host.id)
        self.seen = 0
        self._seen_handed_over = 0
        self._clock = host.clock
        self._ids = host.ids
        self._journal = host.journal
        self._run_id = run_id
        self._owner = owner
        self._done = self._outcome  # made once: each commit hands it over
        self._buffer: list[e.Event] = []
        self._effects: list[Callable[[], None]] = []
        self._in_flight: list[Callable[[], None]] | None = None
        # Effects that are being done. One of them may end a step, and so a turn, before the others had theirs.
        self._doing = 0
        self._ahead_s = 0.0
        # All that one turn of the loop records is one commit: ends of jobs come many at a time.
        self.gathers = False
        self._called = False
        self.durable_seq = state.head_seq

    @property
    def idle(self) -> bool:
        """Nothing is being written or done, and nothing waits to be."""
        return self._in_flight is None and not self._buffer and not self._effects and not self._doing

    @property
    def in_flight(self) -> bool:
        """A commit is under way whose outcome is not known yet."""
        return self._in_flight is not None

    @property
    def pending(self) -> tuple[e.Event, ...]:
        """Recorded, and not handed over yet."""
        return tuple(self._buffer)

    def tells(self, seen: int) -> bool:
        """Whether a commit has said, or will say, that messages were seen up to this number."""
        return self._seen_handed_over >= seen or bool(self._buffer)

    def now(self) -> float:
        """The run's own time: this machine's, or later by as much as the log was ahead of it, or as it was set."""
        now = self._clock.now() + self._ahead_s
        behind_s = self.state.updated_at - now
        if behind_s > 0.0:
            # Another machine's clock wrote the log, or ours was set back. The run's time continues from where the log
            # was.
            self._ahead_s += behind_s
            return self.state.updated_at
        return now

    def set_time(self, at: float) -> None:
        """Sets the run's time to `at`, independent of this machine's clock."""
        self._ahead_s = at - self._clock.now()

    def here(self, at: float) -> float:
        """What this machine's clock will say at that time of the run."""
        self.now()
        return at - self._ahead_s

    def record(self, body: e.Body) -> None:
        """Adds an event to the next commit. Refused: an event that could not be read back."""
        state, buffer = self.state, self._buffer
        if state.status not in MOVES[type(body)]:
            check_move(state.status, type(body))
        if type(body) not in _PROVEN:
            check_body(body)
        now = self._clock.now() + self._ahead_s
        at = now if now >= state.updated_at else self.now()
        buffer.append(state.append(body, at, None if buffer else self._ids.nonce()))

    def after_commit(self, effect: Callable[[], None]) -> None:
        """Does something when all that was recorded so far is durable."""
        self._effects.append(effect)

    def flush(self) -> None:
        """Hands the recorded events to the journal, unless a commit is in flight: then they go with the next."""
        if not self.gathers or self._in_flight is not None or not (self._buffer or self._effects):
            self._hand_over()
        elif not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._owner.turn, self._hand_over)

    def _hand_over(self) -> None:
        self._called = False
        while self._in_flight is None and not self.closed:
            if self._buffer:
                self._submit()
                return
            if not self._effects:
                return
            # Everything that they rest on is durable already.
            effects, self._effects = self._effects, []
            self._do(effects)
        if self._buffer and self._journal.away:
            self._journal.hold(self.waiting())

    def waiting(self) -> Write:
        """The next write as it is so far: events that wait for the commit under way."""
        events = tuple(self._buffer)
        return Write(self._run_id, events[0].seq - 1, events, document(self.state), self.task_change)

    def _submit(self) -> None:
        seen = 0
        if self.seen > self._seen_handed_over:
            # If this commit is lost, this incarnation ends with it. So a read mark needs handing over only once.
            seen = self._seen_handed_over = self.seen
        write = Write(self._run_id, self.durable_seq, tuple(self._buffer), document(self.state), self.task_change, seen)
        self._buffer.clear()
        self._in_flight, self._effects = self._effects, []
        self.task_change = None
        self._journal.submit(write, self._done)

    def _outcome(self, outcome: Outcome) -> None:
        effects, self._in_flight = self._in_flight or (), None
        if type(outcome) is Committed:
            self.durable_seq = outcome.head_seq
        self._owner.turn(self._settle, outcome, effects)

    def _settle(self, outcome: Outcome, effects: Sequence[Callable[[], None]]) -> None:
        if type(outcome) is not Committed:
            self._owner.lost()
            return
        self._do(effects)

    def _do(self, effects: Sequence[Callable[[], None]]) -> None:
        self._doing += 1
        try:
            for effect in effects:
                if self.closed:
                    return
                try:
                    effect()
                except Exception as error:  # noqa: BLE001 - recorded as a pause; the other effects are due anyway
                    self._owner.held(error)
        finally:
            self._doing -= 1

    def start_over(self, state: State) -> None:
        """Drops what was recorded and not yet handed over, after a replay that diverged."""
        assert self._in_flight is None, "a replay hands nothing over before it ends"
        self.state = state
        self._buffer.clear()
        self._effects.clear()

    def close(self) -> None:
        """Nothing more is recorded."""
        self.closed = True
        self._buffer.clear()
        self._effects.clear()
