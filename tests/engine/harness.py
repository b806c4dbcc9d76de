"""Crash points of the engine: logs cut where a crash could have cut them, planted into stores, and replayed.

A *cut* is a prefix of a log that ends where a commit ended: what a crash at that moment leaves behind. A log is
*planted* by appending it to a store as a run without a holder. The *witness* is a list outside of every store in which
the bodies of steps write that they ran.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

import buoy
from buoy.core.ids import RunId, RunnerId
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import State, fold
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.client.client import Client, Run
from buoy.engine.read_log import read_log
from buoy.engine.run.execution import Execution
from buoy.engine.services.timers import Timers
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.ports.host import Clock
from buoy.ports.records import Message, Outcome, Progress, Released, Write
from buoy.ports.store import Store
from buoy.stores import open_store
from tests.patience import LOOK_S, PATIENCE_S, until

__all__ = ["until"]

T = TypeVar("T")

QUICK_STOP = buoy.RunnerOptions(stop_grace_s=2.0)
# Where a step has to end within the grace time.
PATIENT_STOP = buoy.RunnerOptions(stop_grace_s=PATIENCE_S)


# ---- looking


async def log_of(app: Client, run_id: str) -> list[e.Event]:
    return await read_log(app.store, RunId(run_id))


async def types_of(app: Client, run_id: str) -> list[str]:
    return [event.type for event in await log_of(app, run_id)]


async def bodies_of(app: Client, run_id: str, kind: type[T]) -> list[T]:
    """The payloads of one kind, in log order."""
    return [event.body for event in await log_of(app, run_id) if isinstance(event.body, kind)]


async def state_of(app: Client, run_id: str) -> State:
    return fold(RunId(run_id), await log_of(app, run_id))


async def until_event(app: Client, run_id: str, kind: str, count: int = 1) -> list[e.Event]:
    """Waits until the log has so many events of that name, and gives the log."""
    log: list[e.Event] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                log = await log_of(app, run_id)
                if sum(event.type == kind for event in log) >= count:
                    return log
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"{run_id} got no {kind}: {[event.type for event in log]}") from None


async def until_status(app: Client, run_id: str, status: str) -> State:
    state = await state_of(app, run_id)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while state.status != status:
                await asyncio.sleep(LOOK_S)
                state = await state_of(app, run_id)
    except TimeoutError:
        raise AssertionError(f"{run_id} is {state.status}, not {status}: {await types_of(app, run_id)}") from None
    return state


async def result_of(app: Client, run: Run[T]) -> T:
    """The run's result, or a failure that shows its log."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (await run.document()).ended:
                await asyncio.sleep(LOOK_S)
            return await run.result()
    except TimeoutError:
        pause = (await run.document()).pause
        raise AssertionError(
            f"{run.id} does not end: {await types_of(app, run.id)}, pause {pause}, troubles "
            f"{None if app.runner is None else app.runner.troubles()}"
        ) from None


async def outcome_of(app: Client, run: Run[Any]) -> tuple[str, Any]:
    """How the run ended, as data: its status, and its result or the name of its error."""
    try:
        return "completed", await result_of(app, run)
    except buoy.RunFailed as error:
        return "failed", error.type
    except buoy.RunCancelled:
        return "cancelled", None


@asynccontextmanager
async def opened(
    url: str, *workflows: Workflow[..., Any], options: buoy.RunnerOptions = QUICK_STOP
) -> AsyncIterator[Client]:
    async with buoy.open(url, workflows=workflows, options=options) as app:
        yield app


async def once_stopping(app: Client, run_id: str, work: Callable[[], object]) -> None:
    """Does something as soon as the stop of the runner has reached that run."""
    runner = app.runner
    assert runner is not None
    await until(lambda: runner.executions[RunId(run_id)].stopping, "the stop")
    work()


# ---- cutting and planting


def commits(log: Sequence[e.Event]) -> list[list[e.Event]]:
    """The log by commit: each begins with the event that bears a nonce."""
    found: list[list[e.Event]] = []
    for event in log:
        if event.nonce is not None or not found:
            found.append([])
        found[-1].append(event)
    return found


def cuts(log: Sequence[e.Event]) -> list[list[e.Event]]:
    """What each crash between two commits would leave: from the first commit alone to all but the last."""
    groups = commits(log)
    return [[event for group in groups[:count] for event in group] for count in range(1, len(groups))]


def without_end(log: Sequence[e.Event]) -> list[e.Event]:
    """The whole log but for the event that ends the run: its replay must end it the same way."""
    assert isinstance(log[-1].body, e.ENDINGS)
    return list(log[:-1])


def renamed(log: Sequence[e.Event], old: str, new: str) -> list[e.Event]:
    """The log as that of another run: the run's id is part of keys, questions and whatever results hold it."""
    return codec.decode_events(codec.encode_events(log).replace(old.encode(), new.encode()))


def earlier(log: Sequence[e.Event], span_s: float) -> list[e.Event]:
    """The log as if all of it had happened so much earlier, with what it waits for."""

    def body(of: e.Body) -> e.Body:
        due_at = getattr(of, "due_at", None)
        return of if due_at is None else msgspec.structs.replace(of, due_at=due_at - span_s)

    return [msgspec.structs.replace(event, at=event.at - span_s, body=body(event.body)) for event in log]


async def plant(
    store: Store, run_id: str, log: Sequence[e.Event], messages: Iterable[Message] = (), cause: str = "taken_over"
) -> None:
    """Plants a run with this log that has no holder and is due at once."""
    run = RunId(run_id)
    events = tuple(log)
    released = Released(due_at=0.0, now=0.0, cause=cause)
    await store.commit([Write(run, 0, events, document(fold(run, events)), released)])
    for message in messages:
        await store.send(msgspec.structs.replace(message, run_id=run, number=0))


@asynccontextmanager
async def store_at(url: str, clock: Clock | None = None) -> AsyncIterator[Store]:
    store = await open_store(url, clock or SystemClock())
    try:
        yield store
    finally:
        await store.close()


def ended_leaves(log: Sequence[e.Event]) -> set[str]:
    """The leaves whose outcome the log has; their bodies must never run again."""
    return {event.body.leaf for event in log if isinstance(event.body, e.StepCompleted | e.StepFailed)}


def names_done(log: Sequence[e.Event]) -> set[str]:
    """The `name` arguments of the steps that the log has as ended."""
    done = ended_leaves(log)
    found = set()
    for event in log:
        if isinstance(event.body, e.StepStarted) and event.body.leaf in done:
            found.add(str(msgspec.json.decode(event.body.args).get("name")))
    return found


# ---- replay without a runner


class ReplayHost:
    """A host that replays and executes nothing: the first commit of an execution is kept and never answered."""

    def __init__(self) -> None:
        self.id = RunnerId("replay-host")
        self.clock = SystemClock()
        self.ids = SystemIds()
        self.timers = Timers(self.clock)
        self.step_pool = None
        self.workflow_pool = None
        self.journal = self
        self.writes: list[Write] = []
        self.turning: Execution | None = None
        self.away = False

    def submit(self, write: Write, done: Callable[[Outcome], None]) -> None:
        self.writes.append(write)

    def rested(self, execution: Execution) -> None: ...

    def ended(self, execution: Execution) -> None: ...

    def lost(self, execution: Execution) -> None: ...

    def progressed(self, run_id: RunId, progress: Progress) -> None: ...

    def note(self, text: str, error: Exception | None = None) -> None: ...

    def broken(self, execution: Execution, error: Exception) -> None:
        raise error


async def replayed(workflow: Workflow[..., Any], log: Sequence[e.Event]) -> list[e.Body]:
    """What a replay of this log would append first. For a log that code and engine agree on: `claimed` alone."""
    host = ReplayHost()
    created = log[0]
    assert isinstance(created.body, e.WorkflowCreated)
    execution = Execution(host, workflow, RunId("replayed"), list(log))  # type: ignore[arg-type]
    execution.run_id = RunId(_run_of(log))
    execution.state.run_id = execution.run_id
    await execution.resume(e.Claimed(runner=host.id, cause="taken_over"), [])
    execution.detach()
    return [event.body for write in host.writes for event in write.events]


def _run_of(log: Sequence[e.Event]) -> str:
    """The run's id, from the first key that holds it."""
    for event in log:
        if isinstance(event.body, e.StepStarted) and event.body.key:
            return event.body.key.partition("/")[0]
        if isinstance(event.body, e.InteractionRequested):
            return event.body.question_id.partition("/")[0]
    return "replayed"
