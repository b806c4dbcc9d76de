"""Births: makes the runs that other runs ask for, and does the duties of those that ended, until it is certain.

Invariants: everything here may be done twice, and is done again after a crash by the runner that replays the asking
run. An unexpected error is reported to the asking run, and ends only the work in which it was raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from buoy.core import events as e
from buoy.core.document import document
from buoy.core.ids import RunId
from buoy.core.state import fold
from buoy.engine.containment import reason_of
from buoy.engine.duties import Duty, Succeed, cancel_message
from buoy.errors import Problem, UnknownRun, UserError
from buoy.ports import Ended, Message, Released, Write

if TYPE_CHECKING:
    from buoy.engine.definitions import Workflow
    from buoy.engine.runner import Runner

_PAUSE_S = 0.5
_PAUSE_MAX_S = 10.0
_UNKNOWN_MAX = 5
# An ended run whose duties failed unexpectedly is given back, and tried again by the next runner after this time.
_LATER_S = 30.0

# Called once: with None when the work is done, with the error when it failed unexpectedly. Never raises.
Done = Callable[[Exception | None], None]


class Births:
    """Work in the background, on behalf of runs."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, run_id: RunId, created: e.WorkflowCreated, done: Done, workflow: Workflow[..., Any] | None) -> None:
        """A run asks for another one."""
        self._spawn(self._surely(lambda: self._create(run_id, created, workflow)), done)

    def cancel(self, child: RunId, parent: RunId, done: Done) -> None:
        """A run gives its child up."""
        self._spawn(self._surely(lambda: self._send(cancel_message(child, parent))), done)

    def finish(self, run_id: RunId, duties: list[Duty]) -> None:
        """A run ended and still holds its task: does its duties, then gives the task up."""
        self._spawn(self._finish(duties), partial(self._finished, run_id))

    def _finished(self, run_id: RunId, error: Exception | None) -> None:
        runner = self._runner
        if error is None:
            runner.releases.add(run_id, Ended())
            return
        runner.note(f"run {run_id}: {reason_of(error)}", error)
        runner.releases.add(run_id, Released(due_at=runner.clock.now() + _LATER_S, cause="requested"))

    async def settle(self, grace_s: float) -> None:
        """Waits for what is under way. What does not end in time is done by whoever takes the runs over."""
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

    async def _finish(self, duties: list[Duty]) -> None:
        for duty in duties:
            await self._surely(lambda duty=duty: self._do(duty))  # type: ignore[misc]

    async def _do(self, duty: Duty) -> None:
        if isinstance(duty, Succeed):
            await self._create(duty.run_id, duty.created, self._runner.registry.get(duty.created.workflow))
        else:
            await self._send(duty.message)

    async def _surely(self, work: Callable[[], Awaitable[None]]) -> None:
        """Until it is done, or it is certain that trying again would change nothing."""
        pause_s, refusals = _PAUSE_S, 0
        while True:
            try:
                await work()
                return
            except UnknownRun as error:
                # A word to a run that may be about to be born.
                refusals += 1
                if refusals > _UNKNOWN_MAX:
                    self._runner.note(str(error))
                    return
            except UserError as error:
                self._runner.note(str(error))
                return
            except Problem as error:
                self._runner.note(str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _create(self, run_id: RunId, created: e.WorkflowCreated, workflow: Workflow[..., Any] | None) -> None:
        """Create-if-absent: driven here from its first event on, or left to whoever has its code and room for it."""
        runner = self._runner
        if workflow is not None:
            await runner.learn(workflow)
        if workflow is not None and not runner.full and created.queue in runner.info.queues:
            await runner.create(workflow, run_id, created)
            return
        now = runner.clock.now()
        event = e.Event(1, now, created, nonce=runner.ids.nonce())
        doc = document(fold(run_id, [event]))
        await runner.store.commit([Write(run_id, 0, (event,), doc, Released(due_at=now, cause="created"))])

    async def _send(self, message: Message) -> None:
        await self._runner.store.send(message)
