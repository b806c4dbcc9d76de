"""Simulated job runners: the real runner of jobs, with a shell whose commands take simulated time.

A command ends with its process. A process that is frozen stops its commands, too. The shell reports each command to
the ledger of its world, which stands outside of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from buoy.core.batch.resources import Capacity
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.engine.authoring.definitions import Registry
from buoy.engine.batch.lot import LotWorkflow
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.services.room import Room
from buoy.engine.spec.runtime import SpecKit
from buoy.errors import Problem
from buoy.operations.batch.runner import JobRunner
from buoy.ports.host import Command, CommandEnd
from simulator.plan import Slot
from simulator.worker import Worker
from simulator.workflows import Release, release_of

if TYPE_CHECKING:
    from simulator.batch_world import BatchWorld

CPUS = 2
_LOOK_S = 1.0


class JobStart(msgspec.Struct, frozen=True):
    """A command began in a process."""

    key: str
    leaf: LeafId
    attempt: int
    process: str


class JobLedger:
    """What really ran. Judged at once, against what is durable."""

    def __init__(self, world: BatchWorld) -> None:
        self._world = world
        self.running: dict[str, list[JobStart]] = {}
        self.starts: list[JobStart] = []

    def begin(self, start: JobStart) -> None:
        world = self._world
        who = f"{start.leaf} attempt {start.attempt} in {start.process}"
        process = world.processes[start.process]
        if start.leaf in world.completed() and not process.gone:
            world.witness.broken("no completed job runs again", who)
        others = [each for each in self.running.get(start.key, ()) if each.process in world.counted_on()]
        if others and not process.gone:
            world.witness.broken("no job runs twice at once", f"{who}: it runs in {others[0].process}")
        self.starts.append(start)
        self.running.setdefault(start.key, []).append(start)

    def end(self, start: JobStart) -> None:
        self.running[start.key].remove(start)


class SimShell:
    """The shell of one process. A job that is to fail fails as often as the plan says."""

    slots = CPUS

    def __init__(self, process: JobWorker) -> None:
        self._process = process

    async def run(self, command: Command) -> CommandEnd:
        process, world = self._process, self._process.batch
        key = command.variables["BUOY_IDEMPOTENCY_KEY"]
        start = JobStart(key, command.leaf, command.attempt, process.name)
        process.tell(f"{command.leaf}: its command begins, attempt {command.attempt}")
        world.ledger.begin(start)
        takes_s, fails = world.work_of(command.leaf)
        try:
            await asyncio.sleep(takes_s)
        finally:
            # A process that is dead does not even clean up.
            if process.alive:
                world.ledger.end(start)
        code = 1 if command.attempt <= fails else 0
        return CommandEnd(
            exit_code=code, signal=None, peak_memory_bytes=1 << 20, duration_s=takes_s, log="job.1.log"
        )  # fmt: skip

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        return []


class SimSpool:
    """The disk of one host: what is kept there is found by the next process on it."""

    def __init__(self, kept: dict[tuple[str, str, int], bytes]) -> None:
        self._kept = kept

    def keep(self, run_id: RunId, leaf: LeafId, attempt: int, data: bytes) -> None:
        self._kept[run_id, leaf, attempt] = data

    def confirmed(self, run_id: RunId, leaf: LeafId) -> None:
        for key in [each for each in self._kept if each[:2] == (run_id, leaf)]:
            del self._kept[key]

    async def read(self, run_id: RunId, leaf: LeafId, attempt: int) -> bytes | None:
        return self._kept.get((run_id, leaf, attempt))


class JobRelease:
    """What a runner of jobs knows: specs and lots."""

    def __init__(self, release: Release) -> None:
        self._release = release

    def registry(self, *, specs: bool) -> Registry:
        made = self._release.registry(specs=specs)
        made.add(LotWorkflow())
        return made


class JobWorker(Worker):
    """One `buoy runner`."""

    def __init__(self, world: BatchWorld, name: str, slot: Slot, options: RunnerOptions) -> None:
        self.batch = world
        super().__init__(world, name, slot, JobRelease(release_of(1)), options)  # type: ignore[arg-type]
        shell = SimShell(self)
        self.room = Room(Capacity(CPUS, 1 << 40), self.clock, self.info.host)
        kit = self.runner.specs.kit
        SpecKit.__init__(kit, kit.calls, shell, self.runner.stopping)
        kit.serve_jobs(self.room, shell, SimSpool(world.disk_of(slot.name)))
        self.jobs = JobRunner(self.client, self.runner, self.room, world.run_id, self.tell)
        self.spawn(self._serve)

    async def _serve(self) -> None:
        while not self.stopping and self.runner.gone is None:
            try:
                await self.jobs.look()
            except Problem as problem:
                self.tell(f"cannot look: {problem}")
            await asyncio.sleep(_LOOK_S)

    async def _stop(self, grace_s: float) -> None:
        self.room.close()
        await super()._stop(grace_s)


def completed_in(log: Sequence[e.Event]) -> set[LeafId]:
    """Jobs that a durable log has as completed."""
    return {event.body.leaf for event in log if isinstance(event.body, e.StepCompleted)}
