"""The decider of a lot: begins jobs while there is room, and reports to the run that offered them how they ended.

Invariants: a job begins when there is room for it, and its start is durable by then. A result leaves after the commit
that it rests on, and is sent again until that is certain; the receiver ignores what it knows. The lot ends when every
job has ended, nothing of those that were stopped runs any more, and every result was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from buoy.core.batch.lots import RETURNED, JobEnd, JobsMessage, Lot, LotJob, StopJobs, job_end
from buoy.core.ids import LeafId
from buoy.core.limits import JOBS_SEND_S, JOBS_SENT_MAX
from buoy.core.log import events as e
from buoy.engine.authoring.context import Request
from buoy.engine.batch.job_body import job_work, shares_place
from buoy.engine.batch.protocol import JobExecution, cancelled, ended_message, step_of
from buoy.engine.code.replay import replay_in_slices
from buoy.engine.services.timers import Timer
from buoy.engine.spec.runtime import JobKit
from buoy.errors import BadInput, Cancelled, Diverged, StepFailed


class LotDecider:
    """One lot on one runner."""

    def __init__(self, execution: JobExecution, lot: Lot, kit: JobKit) -> None:
        self._execution = execution
        self._lot = lot
        self._kit = kit
        self._room = kit.room
        self._jobs = {job.leaf: job for job in lot.jobs}
        # Under which name each job has its place in the room.
        self._keys = {job.leaf: lot.key(job) for job in lot.jobs}
        self._waiting: deque[LotJob] = deque(lot.jobs)
        self._begun: set[LeafId] = set()
        self._ends: dict[LeafId, JobEnd] = {}
        # Jobs that were stopped while they ran, and may still be ending.
        self._stopping: dict[LeafId, str] = {}
        # How many ends were sent, in the order of the log.
        self._sent = 0
        self._sending = False
        self._timer: Timer | None = None
        self._over = False
        # The lot is to end. It sends what has ended by then first, because its run may continue one day.
        self._cancelled = False
        self._counted = 0
        self._called = False
        # Jobs were given back, and their run is to learn it though this process stops.
        self._returns = False

    @property
    def busy(self) -> bool:
        """Whether something of a job that was stopped may still run: until then no other runner may have the lot."""
        return bool(self._stopping)

    def begin(self, at: float) -> None:
        self._listen()
        self._go()

    def _listen(self) -> None:
        self._room.on_free.append(self._freed)
        self._room.on_close.append(self._closed)

    def deliver(self, leaf: LeafId, outcome: Any, at: float) -> None:
        known = self._execution.state.leaves.get(leaf)
        if self._over or known is None:
            return
        if isinstance(outcome, StepFailed):
            error = known.error or cancelled(str(outcome))
            self._note(JobEnd(leaf, known.attempt, error=msgspec.structs.replace(error, traceback=None)))
        else:
            self._note(JobEnd(leaf, known.attempt, outcome))
        self._execution.after_commit(partial(self._kit.spool.confirmed, self._lot.run, leaf))
        self._go_soon()

    def receive(self, number: int, body: JobsMessage, by: str | None) -> None:
        """A message about jobs. A lot is only ever asked to stop some."""
        if not isinstance(body, StopJobs):
            raise BadInput("a lot takes no such message about jobs")
        stopped = e.JobsStopped(leaves=body.leaves, reason=body.reason, message=number, by=by)
        self._execution.record(stopped)
        for leaf in body.leaves:
            if leaf in self._begun and leaf not in self._ends:
                self._give_up(leaf, body.reason)
        self._stop(stopped)
        self._go()

    def cancel(self, at: float) -> None:
        if self._over or self._cancelled:
            return
        self._cancelled = True
        for leaf in self._begun - set(self._ends):
            self._give_up(leaf)
        if not self._execution.replaying:
            self._report()

    def _give_up(self, leaf: LeafId, reason: str | None = None) -> None:
        """Stops a job. After the commit, because the job may begin until then."""
        if leaf in self._stopping:
            return
        self._stopping[leaf] = reason or "it was cancelled"
        self._execution.cancel_leaf(leaf)
        key, loop = self._keys[leaf], asyncio.get_running_loop()
        left = partial(loop.call_soon, self._execution.turn, self._left, leaf)
        self._execution.after_commit(partial(self._room.when_left, key, left))

    def _left(self, leaf: LeafId) -> None:
        """Nothing of a job that was stopped runs any more."""
        self._note(JobEnd(leaf, self._jobs[leaf].attempt, error=cancelled(self._stopping.pop(leaf))))
        self._go()

    def resume_code(self) -> None:
        self._go()

    def detach(self) -> None:
        self._over = True
        for heard, own in ((self._room.on_free, self._freed), (self._room.on_close, self._closed)):
            if own in heard:
                heard.remove(own)
        self._count(0)
        if self._timer is not None:
            self._timer.cancel()
        for leaf in self._begun:
            self._room.give_up(self._keys[leaf])

    def check_pending(self) -> None:
        """A lot waits for exactly what it began."""

    # ---- jobs

    def _freed(self) -> None:
        """Something became free in the room."""
        if self._waiting:
            self._go_soon()

    def _go_soon(self) -> None:
        """In the next turn of the loop: this one may be another run's, and may bring more ends."""
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._execution.turn, self._go)

    def _go(self) -> None:
        self._called = False
        if self._over or (self._execution.delivery_paused and not self._execution.replaying):
            return
        while self._waiting and not self._cancelled:
            job = self._waiting[0]
            if job.leaf in self._ends or job.leaf in self._begun:
                self._waiting.popleft()
                continue
            shared = shares_place(self._lot, job)
            if not self._room.reserve(self._keys[job.leaf], self._lot.resources, shared=shared):
                break
            self._waiting.popleft()
            self._open(job)
        self._count(len(self._waiting))
        self._report()

    def _open(self, job: LotJob, *, again: bool = False) -> None:
        self._begun.add(job.leaf)
        work = job_work(self._lot, job, self._kit, again=again)
        key, name = self._keys[job.leaf], step_of(job.leaf)
        started = e.StepStarted(leaf=job.leaf, name=name, attempt=job.attempt, args=msgspec.Raw(b"{}"), key=key)
        self._execution.open_leaf(Request(job.leaf, "step", started, work))

    def _count(self, waiting: int) -> None:
        """Keeps the room's count of jobs that are held here and have not started."""
        pending, resources = self._room.pending, self._lot.resources
        left = pending.get(resources, 0) + waiting - self._counted
        self._counted = waiting
        if left > 0:
            pending[resources] = left
        else:
            pending.pop(resources, None)

    def _note(self, end: JobEnd) -> None:
        self._ends.setdefault(end.leaf, end)

    def _stop(self, stopped: e.JobsStopped) -> None:
        for leaf in stopped.leaves:
            job = None if leaf in self._stopping else self._jobs.get(leaf)
            if job is not None and stopped.cause == RETURNED:
                # The error is for an owner of an earlier release, which knows no jobs that are returned.
                self._note(JobEnd(leaf, job.attempt, error=cancelled(stopped.reason or ""), returned=True))
            elif job is not None:
                self._note(JobEnd(leaf, job.attempt, error=cancelled(stopped.reason or "it was cancelled")))

    # ---- this process stops

    def _closed(self) -> None:
        if self._room.gives_back:
            asyncio.get_running_loop().call_soon(self._execution.turn, self._give_back)

    def _give_back(self) -> None:
        """Gives back jobs that have not started while others of this lot run. If none runs, the lot itself is
        released."""
        if self._over or self._cancelled or self._execution.replaying or self._begun <= self._ends.keys():
            return
        waiting = tuple(job.leaf for job in self._waiting if job.leaf not in self._begun | self._ends.keys())
        if waiting:
            returned = e.JobsStopped(leaves=waiting, cause=RETURNED, reason="its runner stops")
            self._execution.record(returned)
            self._stop(returned)
            self._waiting.clear()
            self._count(0)
            self._returns = True
        self._send()

    # ---- results

    def _report(self) -> None:
        """Sends what has ended: many at once, after a second, or because all have ended."""
        unsent, all_ended = len(self._ends) - self._sent, len(self._ends) == len(self._jobs)
        if self._stopping and not unsent:
            return
        if self._cancelled and not unsent and not self._sending:
            self._over = True
            self._execution.code_raised(Cancelled(""))
        elif all_ended and not unsent and not self._sending:
            self._over = True
            ran = [end for end in self._ends.values() if not end.returned]
            failed = sum(end.error is not None for end in ran)
            self._execution.code_returned({"completed": len(ran) - failed, "failed": failed})
        elif self._sending or not unsent:
            return
        elif all_ended or self._cancelled or unsent >= JOBS_SENT_MAX:
            self._send()
        elif self._timer is None:
            host = self._execution.host
            due = partial(self._execution.turn, self._send)
            self._timer = host.timers.set(host.clock.now() + JOBS_SEND_S, due)

    def _send(self) -> None:
        """One message at a time, once everything that was recorded so far is durable."""
        self._timer = None
        if self._sending or self._over or self._sent == len(self._ends):
            return
        self._sending = True
        message, last = ended_message(self._execution.run_id, self._lot.run, tuple(self._ends.values()), self._sent)
        done = partial(self._execution.turn, self._was_sent, last)
        self._execution.after_commit(lambda: self._execution.host.outbox.send(message, done))

    def _was_sent(self, last: int, error: Exception | None) -> None:
        self._sending = False
        if error is not None:
            raise error
        self._sent = last
        if self._returns:
            self._send()
        self._go()

    # ---- replay

    async def replay(self, events: Sequence[e.Event], at: float) -> None:
        self._listen()
        await replay_in_slices(events, self._execution.host.clock, self._replay_some)
        self._execution.history.forget()
        self._go()

    def _replay_some(self, events: Sequence[e.Event]) -> None:
        for event in events:
            self._replay_event(event)

    def _replay_event(self, event: e.Event) -> None:
        match event.body:
            case e.StepStarted(leaf=leaf):
                job = self._jobs.get(leaf)
                if job is None:
                    raise Diverged(f"event {event.seq} starts {leaf}, which is not in this lot", log_leaf=leaf)
                if leaf not in self._begun:
                    self._open(job, again=True)
            case e.StepCompleted() | e.StepFailed() as body:
                self._note(job_end(body))
            case e.JobsStopped() as body:
                self._stop(body)
            case e.CancelRequested():
                self.cancel(event.at)
            case _:
                return
