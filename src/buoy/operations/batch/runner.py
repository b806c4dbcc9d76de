"""The runner of jobs: claims the lots of one run whose jobs fit what is free here. It may drive the run itself.

Invariants: a lot is claimed only while one of its jobs could begin. The run itself is taken only when no living runner
holds it. The runner ends when the run has ended or rests, or when its time is nearly over. A run that ended leaves no
lot behind that no runner has.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from buoy.core.batch.resources import queue_resources
from buoy.core.ids import RunId
from buoy.core.limits import (
    RUNNER_CANCEL_S,
    RUNNER_MARGIN_S,
    RUNNER_MARGIN_SHARE,
    RUNS_PAGE_MAX,
    TASKS_CLAIM_MAX,
)
from buoy.core.log.document import Document
from buoy.core.log.events import LOT_WORKFLOW
from buoy.core.log.lifecycle import Status
from buoy.core.spec.model import Resources
from buoy.engine.client.client import Client
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.services.room import Room
from buoy.errors import WrongState
from buoy.operations.inspect.runs import NOT_ENDED
from buoy.operations.workers.drive import Driver
from buoy.ports.records import RunQuery


class JobRunner:
    """One process that runs jobs of one run."""

    def __init__(self, client: Client, runner: Runner, room: Room, run_id: RunId, say: Callable[[str], None]) -> None:
        self._client = client
        self._runner = runner
        self._room = room
        self._run_id = run_id
        self._driver = Driver(client, runner, run_id, say, children=False)
        self._margin_s = min(RUNNER_MARGIN_S, RUNNER_MARGIN_SHARE * (room.time_left_s or 0.0))
        # Queues of this run whose jobs could run here, with what those need.
        self._queues: dict[str, Resources] = {}
        # Queues with lots of the run that has ended.
        self._settling: tuple[str, ...] = ()
        self.misfits: dict[str, str] = {}
        runner.wanted_now = self._wanted
        room.on_free.append(self._freed)

    async def look(self) -> Document:
        """Takes the run if no runner drives it, and learns on which queues it offers lots."""
        document, _ = await self._driver.tend()
        if document.status is Status.PAUSED and not self._driver.driven_here:
            # A request that waited for a driver may have ended the run in the moment in which it was taken.
            document = (await self._client.record(self._run_id)).document
        if document.placement != "batch":
            raise WrongState(f"run {self._run_id} is no batch run; only a run of `buoy submit` has jobs for runners")
        await self._serve(document)
        return document

    def done(self, document: Document) -> bool:
        """Whether nothing is left for this runner."""
        if document.ended:
            return True
        rests = document.status is Status.PAUSED and not self._driver.driven_here
        return rests and not self._room.running and not self._runner.executions

    async def settle(self) -> bool:
        """Takes lots of the ended run that no runner has. Each was asked to cancel, and ends here without a job.

        False: no lot is left that this runner could end.
        """
        self._room.close(gives_back=False)
        page = await self._client.runs(RunQuery(statuses=NOT_ENDED, parent=self._run_id), limit=RUNS_PAGE_MAX)
        lots = [each for each in page.runs if each.document.workflow == LOT_WORKFLOW]
        free = {each.document.queue for each in lots if each.holder is None}
        self._settling = tuple(sorted(free))
        if free:
            self._runner.intake.room_again()
        return any(each.holder in (None, self._runner.id) for each in lots)

    @property
    def out_of_time(self) -> bool:
        """Whether the time of this runner is nearly over."""
        left = self._room.time_left_s
        return left is not None and left <= self._margin_s

    async def _serve(self, document: Document) -> None:
        served = {}
        for queue in sorted(document.lots):
            resources = queue_resources(self._run_id, queue)
            if resources is None:
                continue
            why = self._room.lack(resources)
            if why is None:
                served[queue] = resources
            else:
                self.misfits[queue] = why
        if served != self._queues and not self._runner.stopping.is_set():
            self._queues = served
            self._runner.info = msgspec.structs.replace(self._runner.info, queues=tuple(served))
            await self._runner.store.register(self._runner.info)
        if served:
            self._runner.intake.room_again()

    def _wanted(self) -> tuple[tuple[str, ...], int]:
        """The queues whose jobs could begin now, and one lot at a time: the next one may not fit any more."""
        if self._settling:
            return self._settling, TASKS_CLAIM_MAX
        return tuple(queue for queue, resources in self._queues.items() if self._room.takes(resources)), 1

    def _freed(self) -> None:
        """Something became free in the room. With jobs at hand that have not started, no lot is wanted."""
        if self._settling or any(map(self._room.takes, self._queues.values())):
            self._runner.intake.room_again()


def runner_options() -> RunnerOptions:
    """A runner of jobs waits for those that stop in good order."""
    return RunnerOptions(cancel_s=RUNNER_CANCEL_S)
