"""Outbox: creates the runs that other runs ask for, and sends what ended runs owe, until it is certain.

Invariants: everything here may be done twice, and is done again after a crash by the runner that replays the asking
run. An unexpected error is reported to the asking run, and ends only the work in which it was raised. What one run is
owed is done in order; a run that cannot take it now delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.lifecycle import Status
from buoy.engine.read_log import read_log
from buoy.engine.run.containment import reason_of
from buoy.engine.run.owed import CreateRun, Owed, SendMessage, cancel_message, duties_left
from buoy.engine.run.unclaimed_lots import end_lot, is_unclaimed_lot
from buoy.engine.services.commits import write_of
from buoy.errors import InboxFull, Problem, StoreUnusable, Unavailable, UnknownRun, UserError
from buoy.ports.records import Ended, Message, Released

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Registry, Workflow
    from buoy.engine.services.journal import Journal
    from buoy.ports.host import Clock, Ids
    from buoy.ports.records import RunnerInfo
    from buoy.ports.store import Store

_PAUSE_S = 0.5
_PAUSE_MAX_S = 10.0
_UNKNOWN_MAX = 5
# An ended run whose duties failed unexpectedly is given back, and tried again by the next runner after this time.
_LATER_S = 30.0

# Called once: with None when the work is done, with the error when it failed unexpectedly. Never raises.
Done = Callable[[Exception | None], None]


class _Errand(msgspec.Struct):
    """Work for one other run, and how often that run has refused it."""

    target: RunId
    work: Callable[[], Awaitable[object]]
    unknown: int = 0
    full: int = 0


class _ReleaseQueue(Protocol):
    def add(self, run_id: RunId, change: Released | Ended, /) -> None: ...


class OutboxHost(Protocol):
    """The runner, as its outbox uses it."""

    store: Store
    registry: Registry
    info: RunnerInfo
    clock: Clock
    ids: Ids
    journal: Journal

    @property
    def releases(self) -> _ReleaseQueue: ...

    @property
    def full(self) -> bool: ...

    def note(self, text: str, error: Exception | None = None) -> None: ...

    async def learn(self, workflow: Workflow[..., Any]) -> None: ...

    def create(self, workflow: Workflow[..., Any], run_id: RunId, created: e.WorkflowCreated) -> Awaitable[object]: ...


class Outbox:
    """Work in the background, on behalf of runs."""

    def __init__(self, runner: OutboxHost) -> None:
        self._runner = runner
        self._tasks: set[asyncio.Task[None]] = set()
        # Runs that ended, and whose duties are being done.
        self._finishing: set[RunId] = set()

    def want(self, run_id: RunId, created: e.WorkflowCreated, done: Done, workflow: Workflow[..., Any] | None) -> None:
        """A run asks for another one."""
        self._spawn(self._surely([_Errand(run_id, lambda: self._create(run_id, created, workflow))]), done)

    def cancel(self, child: RunId, parent: RunId, done: Done) -> None:
        """A run gives its child up."""
        message = cancel_message(child, parent)
        self._spawn(self._surely([_Errand(child, partial(self._cancel, message))]), done)

    def send(self, message: Message, done: Done) -> None:
        """Sends a message from one run to another until its arrival is certain."""
        self._spawn(self._surely([_Errand(message.run_id, partial(self._send, message))]), done)

    def finish(self, run_id: RunId, duties: Sequence[Owed]) -> None:
        """A run ended and still holds its task: does its duties, then gives the task up."""
        if run_id not in self._finishing:  # else a comparison of held and driven runs found it a second time
            self._finishing.add(run_id)
            self._spawn(self._surely([self._errand(duty) for duty in duties]), partial(self._finished, run_id))

    def _finished(self, run_id: RunId, error: Exception | None) -> None:
        runner = self._runner
        self._finishing.discard(run_id)
        if error is None:
            runner.releases.add(run_id, Ended())
            return
        runner.note(f"run {run_id}: {reason_of(error)}", error)
        now = runner.clock.now()
        runner.releases.add(run_id, Released(due_at=now + _LATER_S, now=now, cause="requested"))

    async def settle(self, grace_s: float) -> None:
        """Waits for what is under way. The runner that takes a run over does what does not end in time."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None], done: Done) -> None:
        async def to_the_end() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - reported to the run on whose behalf it was done
                done(error)
            else:
                done(None)

        task = asyncio.get_running_loop().create_task(to_the_end())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _errand(self, duty: Owed) -> _Errand:
        if isinstance(duty, CreateRun):
            workflow = self._runner.registry.get(duty.created.workflow)
            return _Errand(duty.run_id, partial(self._create, duty.run_id, duty.created, workflow))
        return _Errand(duty.message.run_id, partial(self._send, duty.message))

    async def _surely(self, errands: Sequence[_Errand]) -> None:
        """Until each is done, or it is certain that trying it again would change nothing."""
        pause_s = _PAUSE_S
        while errands := await self._round(errands):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _round(self, errands: Sequence[_Errand]) -> list[_Errand]:
        """Tries each errand once, and gives those that are left.

        Errands for a run that could not take one wait behind all others, in their order. If the store gave no answer,
        the round ends: each further call would wait for that answer, too.
        """
        left: list[_Errand] = []
        waiting: dict[RunId, list[_Errand]] = {}
        answers = True
        for errand in errands:
            if errand.target in waiting:
                waiting[errand.target].append(errand)
            elif not answers:
                left.append(errand)
            elif (answered := await self._attempt(errand)) is not None:
                waiting[errand.target] = [errand]
                answers = answered
        return [*left, *(each for blocked in waiting.values() for each in blocked)]

    async def _attempt(self, errand: _Errand) -> bool | None:
        """None: it is over, done or given up. Else it is to be tried again; False if the store itself is in trouble."""
        try:
            await errand.work()
        except UnknownRun as error:
            # A word to a run that may be about to be born.
            errand.unknown += 1
            if errand.unknown > _UNKNOWN_MAX:
                self._runner.note(str(error))
                return None
        except InboxFull as error:
            # No fault of who asked: the run reads its messages, sooner or later.
            errand.full += 1
            if errand.full == 1:
                self._runner.note(str(error))
        except UserError as error:
            self._runner.note(str(error))
            return None
        except Problem as error:
            self._runner.note(str(error))
            return not isinstance(error, Unavailable | StoreUnusable)
        else:
            return None
        return True

    async def _create(self, run_id: RunId, created: e.WorkflowCreated, workflow: Workflow[..., Any] | None) -> None:
        """Creates a run if it is absent: drives it here from its first event, or leaves it to another runner."""
        runner = self._runner
        if workflow is not None:
            await runner.learn(workflow)
        if workflow is not None and not runner.full and created.queue in runner.info.queues:
            await runner.create(workflow, run_id, created)
            return
        now = runner.clock.now()
        new = append(run_id, (), [created], now, runner.ids.nonce())
        made = await runner.journal.commit(write_of(new, Released(due_at=now, now=now, cause="created")))
        if not made and created.workflow == e.LOT_WORKFLOW:
            await self._repeat_end(run_id)

    async def _repeat_end(self, lot: RunId) -> None:
        """A lot that was cancelled without a runner has sent its run no report. That run continues."""
        store = self._runner.store
        record = await store.run(lot)
        if record is None or record.document.status is not Status.CANCELLED:
            return
        for duty in duties_left(lot, await read_log(store, lot)):
            if isinstance(duty, SendMessage):
                await store.send(duty.message)

    async def _cancel(self, message: Message) -> None:
        if await self._send(message):
            await self._repeat_end(message.run_id)

    async def _send(self, message: Message) -> bool:
        """Whether it was the cancellation of a lot that no runner has, and this process ended it."""
        runner = self._runner
        ended = False
        if message.kind == "cancel" and is_unclaimed_lot(await runner.store.run(message.run_id)):
            ended = await end_lot(runner.store, runner.clock, runner.ids, message.run_id, runner.info.id)
        if not ended:
            await runner.store.send(message)
        return ended
