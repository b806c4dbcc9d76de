"""Births: makes the runs that other runs ask for, and does the duties of those that ended, until it is certain.

Invariant: everything here may be done twice, and is done again after a crash by whoever replays the asking run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from buoy.core import events as e
from buoy.core.document import document
from buoy.core.ids import RunId
from buoy.core.state import fold
from buoy.engine.duties import Duty, Succeed, cancel_message
from buoy.errors import Problem, UnknownRun, UserError
from buoy.ports import Ended, Message, Released, Write

if TYPE_CHECKING:
    from buoy.engine.definitions import Workflow
    from buoy.engine.runner import Runner

_PAUSE_S = 0.5
_PAUSE_MAX_S = 10.0
_UNKNOWN_MAX = 5


class Births:
    """Work in the background, on behalf of runs."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, workflow: Workflow[..., Any], run_id: RunId, created: e.WorkflowCreated) -> None:
        """A run asks for another one."""
        self._spawn(self._surely(lambda: self._create(workflow, run_id, created)))

    def cancel(self, child: RunId, parent: RunId) -> None:
        """A run gives its child up."""
        self._spawn(self._surely(lambda: self._send(cancel_message(child, parent))))

    def finish(self, workflow: Workflow[..., Any], run_id: RunId, duties: list[Duty]) -> None:
        """A run ended and still holds its task: does its duties, then gives the task up."""
        self._spawn(self._finish(workflow, run_id, duties))

    async def settle(self, grace_s: float) -> None:
        """Waits for what is under way. What does not end in time is done by whoever takes the runs over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, workflow: Workflow[..., Any], run_id: RunId, duties: list[Duty]) -> None:
        for duty in duties:
            if isinstance(duty, Succeed):
                created, successor = duty.created, duty.run_id
                await self._surely(lambda made=created, name=successor: self._create(workflow, name, made))  # type: ignore[misc]
            else:
                await self._surely(lambda message=duty.message: self._send(message))  # type: ignore[misc]
        self._runner.releases.add(run_id, Ended())

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

    async def _create(self, workflow: Workflow[..., Any], run_id: RunId, created: e.WorkflowCreated) -> None:
        runner = self._runner
        await runner.learn(workflow)
        if not runner.full and created.queue in runner.info.queues:
            await runner.create(workflow, run_id, created)
            return
        now = runner.clock.now()
        event = e.Event(1, now, created, nonce=runner.ids.nonce())
        doc = document(fold(run_id, [event]))
        await runner.store.commit([Write(run_id, 0, (event,), doc, Released(due_at=now, cause="created"))])

    async def _send(self, message: Message) -> None:
        await self._runner.store.send(message)
