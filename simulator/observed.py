"""The observed store: what a process's engine sees as its store. Reports to the witness what was acknowledged to whom.

Calls that the witness need not know of go straight to the real store. Planted mutants sit between the two. Each call
has its name, so that a story can name the call in which a fault happened.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from inspect import iscoroutinefunction
from types import MethodType, coroutine
from typing import TYPE_CHECKING, Any, cast

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import SUSPECT_AFTER_S
from buoy.core.log.document import Document
from buoy.core.log.events import Event, Interrupted
from buoy.ports.maintenance import Archive, Tombstone
from buoy.ports.records import (
    Beat,
    Committed,
    Evidence,
    Held,
    Message,
    Orphan,
    Outcome,
    Receipt,
    Released,
    Task,
    Wants,
    Write,
)  # fmt: skip
from buoy.ports.store import Store
from simulator.faults import CALL, Gate
from simulator.hand_overs import DOCUMENT, DUE, SEEN, asleep, wrong_document, wrong_due
from simulator.witness import Acknowledged, Sent, Touched

if TYPE_CHECKING:
    from simulator.process import Process

_ROUNDING_S = 0.001
_PARTS = frozenset({"archive", "integrity", "schedules"})


def observed(store: Store, process: Process, gate: Gate) -> Store:
    """The store as that process's engine gets it."""
    return cast(Store, _Named(_Observed(store, process, gate)))


class _Named:
    """A store, or a part of one, whose calls say what they are."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        # Cheaper than to ask for a coroutine function: plain values are asked for all the time.
        if not isinstance(found, MethodType) or not iscoroutinefunction(found):
            return _Named(found) if name in _PARTS else found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await _under(name, found(*args, **kwargs))

        self.__dict__[name] = call  # not asked for again: every call of every process comes by here
        return call


@coroutine
def _under(name: str, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Does the work under that name, which is set again for each stretch of it: the engine may carry a commit from one
    task, and so one context, to another.
    """
    error: BaseException | None = None
    while True:
        before = CALL.get()
        CALL.set(name)
        try:
            waits = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            CALL.set(before)
        error = None
        try:
            yield waits
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - handed on to the work, whose it is
            error = thrown


class _Observed:
    """One process's store."""

    def __init__(self, store: Store, process: Process, gate: Gate) -> None:
        self._store = store
        self._process = process
        self._gate = gate
        self._world = process.world
        # Given back while this process tried to create them: it was wrong only if the try succeeds.
        self._given_early: set[RunId] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def single_host(self) -> bool:
        return self._world.plan.single_host

    @property
    def archive(self) -> Archive:
        return cast(Archive, _ObservedArchive(self._store.archive, self._process))

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        for write in writes:
            self._world.expect_kin(write.run_id, write.events)
            nonce = write.events[0].nonce
            assert nonce is not None, "a commit without a nonce"
            self._world.witness.writers[nonce] = self._process.name
        kinds = dict.fromkeys(event.type for write in writes for event in write.events)
        kinds.update(dict.fromkeys(f"{event.type} of {write.run_id}" for write in writes for event in write.events))
        await self._gate.at_events(kinds, after=False)
        with self._world.witness.holders.moving(*(write.run_id for write in writes if write.task is not None)):
            outcomes = await self._world.mutant.commit(self._store, writes)
        for write, outcome in zip(writes, outcomes, strict=True):
            self._note(write, outcome)
        await self._gate.at_events(kinds, after=True)
        # A process that died above never heard of it.
        for write in (each for each, outcome in zip(writes, outcomes, strict=True) if isinstance(outcome, Committed)):
            self._acknowledged(write)
        self._world.hints.changed()
        return outcomes

    def _note(self, write: Write, outcome: Outcome) -> None:
        kinds = ", ".join(event.type for event in write.events)
        done = isinstance(outcome, Committed)
        if write.after_seq == 0 and write.run_id in self._given_early:
            self._given_early.discard(write.run_id)
            if done:
                self._given_back_and_driven(write.run_id)
        self._process.tell(f"{write.run_id} {write.after_seq + 1}: {kinds} -> {'durable' if done else 'fenced'}")
        if done and write.document.open:
            for text in wrong_document(self._world.look(write.run_id)[0], write.document):
                self._world.witness.broken(DOCUMENT, f"{write.run_id}: {text}")
        if done and isinstance(write.task, Released):
            for text in asleep(self._world.look(write.run_id)[0][: write.events[-1].seq], write.task):
                self._world.witness.broken(DUE, f"{write.run_id}: {text}")
            self._judge_seen(write.run_id, write.task.seen)
        if done:
            self._judge_seen(write.run_id, write.seen)
        if done and isinstance(write.task, Held):
            self._world.witness.holders.holds(write.run_id, write.task.runner)

    def _acknowledged(self, write: Write) -> None:
        first, last = write.events[0], write.events[-1]
        self._world.witness.committed(
            Acknowledged(write.run_id, first.nonce, first.seq, last.seq, self._process.name),
            gives_back=any(isinstance(event.body, Interrupted) for event in write.events),
            buried=self._world.buried_log(write.run_id),
        )

    async def landed(self, writes: Sequence[Write]) -> list[Outcome | None]:
        return await self._world.mutant.landed(self._store, writes)

    async def events(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Event]:
        return await self._world.mutant.events(self._store, run_id, after, limit)

    async def send(self, message: Message) -> Receipt:
        receipt = await self._world.mutant.send(self._store, message)
        self._world.witness.sends.append(
            Sent(message.run_id, receipt.number, message.dedupe, message.kind, receipt.duplicate, self._process.name)
        )
        twin = " (was there)" if receipt.duplicate else ""
        self._process.tell(f"{message.run_id}: sent {message.kind} {message.dedupe} as {receipt.number}{twin}")
        self._world.hints.changed()
        return receipt

    async def inbox(self, run_id: RunId, after: int = 0, limit: int | None = None) -> list[Message]:
        found = self._world.mutant.inbox(run_id, await self._store.inbox(run_id, after, limit))
        if found and self._gate.doubles():
            self._process.tell(f"{run_id}: its messages are delivered twice")
            return [*found[::-1], *found]
        return found

    async def claim_tasks(self, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        holders, dead = self._world.witness.holders, self._process.buried
        since = holders.moves
        tasks = await self._world.mutant.claim_tasks(self._store, runner, wants, limit)
        for task in tasks:
            self._process.tell(f"{task.run_id}: took the task ({task.cause})")
            if dead:
                text = f"{self._process.name} got that of {task.run_id}, and was declared gone before it asked"
                self._world.witness.broken("who is gone gets no task", text)
            other = holders.takes(task.run_id, self._process.name, self._world.counted_on(), since)
            if other is not None and task.run_id not in self._world.damaged:
                text = f"{task.run_id}: {self._process.name} took its task, which {other} holds"
                self._world.witness.broken("a task has one holder", text)
        return tasks

    async def release(self, run_id: RunId, runner: RunnerId, change: Any, head_seq: int | None = None) -> bool:
        changed = self._world.mutant.release(change)
        with self._world.witness.holders.moving(run_id):
            done = await self._store.release(run_id, runner, changed, head_seq)
        if done and head_seq is not None and isinstance(changed, Released):
            self._judge_rest(run_id, changed, head_seq)
        if done and self._process.drives(run_id):
            self._given_back_and_driven(run_id)
        elif done and self._process.creates(run_id):
            # A parent that is driven again asks for its child again, which has ended: the store refuses that one.
            self._given_early.add(run_id)
        self._process.tell(f"{run_id}: {'gave the task back' if done else 'had no task to give back'}")
        self._world.hints.changed()
        return done

    def _judge_rest(self, run_id: RunId, change: Released, head_seq: int) -> None:
        log, broken = self._world.look(run_id)[0][:head_seq], self._world.witness.broken
        for text in (*asleep(log, change), *(wrong_due(log, change) if self._world.plan.one_clock else ())):
            broken(DUE, f"{run_id}: {text}")
        self._judge_seen(run_id, change.seen)

    def _judge_seen(self, run_id: RunId, seen: int) -> None:
        """A message that comes later under a number that was called seen does not wake the run."""
        if seen and run_id not in self._world.sent_before:
            last = max((message.number for message in self._world.storage.inbox(run_id)), default=0)
            if seen > last:
                text = f"{run_id}: {self._process.name} has seen message {seen}, and the last one is {last}"
                self._world.witness.broken(SEEN, text)

    def _given_back_and_driven(self, run_id: RunId) -> None:
        text = f"{run_id}: {self._process.name} gave its task back, and drives it"
        self._world.witness.broken("what is driven is not given back", text)

    async def mark_read(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        await self._store.mark_read(run_id, runner, number)
        self._judge_seen(run_id, number)
        self._world.mutant.seen(run_id, number)

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        taken = await self._store.beat(runner, beat)
        self._process.beaten_at = self._world.kernel.time
        return taken

    async def declare_dead(
        self, runner: RunnerId, why: str, *, cause: str, evidence: Evidence, beat_number: int | None = None
    ) -> int | None:
        # Known before it is durable: from here on nothing may be expected of that runner any more.
        self._world.gone(runner, by=self._process)
        self._world.witness.holders.forget(runner)
        about = self._world.processes.get(runner)
        silent_s = None if about is None else about.silent_s(self._process)
        released = await self._store.declare_dead(runner, why, cause=cause, evidence=evidence, beat_number=beat_number)
        if about is not None:
            about.buried |= released is not None
        self._process.tell(f"buried {runner} ({why}), {released} runs due")
        if released is not None and silent_s is not None and silent_s < SUSPECT_AFTER_S - _ROUNDING_S:
            text = f"{self._process.name} buries {runner}, which is alive and has beaten {silent_s:.1f} s ago"
            self._world.witness.broken("no clock buries the living", text)
        self._world.hints.changed()
        return released

    async def orphans(self, limit: int) -> list[Orphan]:
        return self._world.mutant.orphans(await self._store.orphans(limit))

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        with self._world.witness.holders.moving(orphan.run_id):
            adopted = await self._store.requeue_orphan(orphan)
        if adopted:
            self._world.witness.touches.append(Touched(orphan.run_id, self._process.name, "made it due again"))
        self._process.tell(f"{orphan.run_id}: {'adopted' if adopted else 'not adopted'}: {orphan.why}")
        self._world.hints.changed()
        return adopted

    async def wait_for_change(self, timeout_s: float) -> bool:
        return await self._world.hints.wait(self._process.name, timeout_s)


class _ObservedArchive:
    """One process's archive. What is purged is remembered outside of the store."""

    def __init__(self, archive: Archive, process: Process) -> None:
        self._archive = archive
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def purge(self, tombstone: Tombstone) -> bool:
        self._process.world.remember(tombstone.run_id)
        self._process.world.mutant.purges(tombstone.run_id)
        done = await self._archive.purge(tombstone)
        self._process.tell(f"{tombstone.run_id}: {'purged' if done else 'not purged'}")
        return done

    async def rewrite(self, run_id: RunId, document: Document, head_seq: int) -> bool:
        done = await self._archive.rewrite(run_id, document, head_seq)
        if done:
            touched = Touched(run_id, self._process.name, "rebuilt its document")
            self._process.world.witness.touches.append(touched)
            self._process.tell(f"{run_id}: {touched.how}")
        return done
