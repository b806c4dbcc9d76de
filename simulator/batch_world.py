"""Batch runs in the simulator: runners vanish, freeze until they are given up, lose the store, and are stopped.

Promises: no completed job runs again; no job is lost; none runs twice at the same time unless its first runner was
declared dead; each reset gives each job exactly one further attempt.

    python -m simulator.batch_world 0 100
"""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections import Counter
from random import Random
from typing import Any

from buoy.core.batch.lots import ResetJobs
from buoy.core.ids import LeafId, RunId, leaf_id
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.state import State, fold
from buoy.core.spec.problems import Problems, no_lines
from buoy.core.spec.reader import read_spec
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import Problem
from buoy.operations.batch.submit import submit
from buoy.operations.targets.spec_files import Target
from buoy.ports.records import Message
from simulator.batch_jobs import JobLedger, JobWorker, completed_in
from simulator.faults import Rates
from simulator.kernel import bury_loops
from simulator.mutants import Mutant
from simulator.plan import CHAOS_S, Blow, Plan, Slot
from simulator.sender import Sender
from simulator.story import Story
from simulator.world import World

_RUNNERS = 3
_JOBS_MAX = 14
_END_S = 1_500.0
# Of one job: it fails twice at most.
_RESETS_MAX = 4
_KINDS = ("crash", "crash", "freeze", "freeze", "stop", "stop", "cut", "outage", "silence")


def batch_plan(seed: int, store: str) -> Plan:
    """What befalls the runners of this seed."""
    rng = Random(f"batch {seed}")
    single_host = rng.random() < 0.5
    rates = Rates(crash=rng.choice((0.0, 0.002)), fail=0.02, lost=0.02, slow=0.2, very_slow=0.01, late=0.01, twice=0.05)
    blows = [
        Blow(
            f"blow-{number}", rng.uniform(1.0, CHAOS_S), rng.choice(_KINDS),
            rng.choice((2.0, 10.0, 40.0, 400.0 if not single_host else 40.0)), rng.random(), rng.random() * 0.79,
        )
        for number in range(rng.randint(4, 12))
    ]  # fmt: skip
    slots = [Slot(f"runner-{number}", ()) for number in range(1, _RUNNERS + 1)]
    return Plan(
        store=store, single_host=single_host, skew_s=0.0, rates=rates, runs=[], slots=slots, acts=[], blows=blows,
        waiting_runs_max=100, driving_runs_max=100, hints_lost=0.1,
    )  # fmt: skip


class BatchWorld(World):
    """One batch run and its runners."""

    run_id = RunId("batch")

    def __init__(self, seed: int, store: str, mutant: Mutant | None = None, *, trace: bool = False) -> None:
        super().__init__(seed, batch_plan(seed, store), mutant or Mutant(), Story(whole=trace))
        rng = Random(f"jobs {seed}")
        self.ledger = JobLedger(self)
        self._disks: dict[str, dict[tuple[str, str, int], bytes]] = {}
        self._work: dict[str, tuple[float, int]] = {}
        self.steps: list[dict[str, Any]] = []
        for number in range(rng.randint(4, _JOBS_MAX)):
            needs = [each["id"] for each in self.steps if rng.random() < 0.25]
            self.steps.append({"id": f"j{number}", "run": "true", "needs": needs})
            self._work[f"j{number}"] = (rng.choice((0.01, 0.5, 3.0, 8.0)), rng.choice((0, 0, 0, 1, 2)))

    def work_of(self, leaf: LeafId) -> tuple[float, int]:
        """How long a job takes, and how often it fails before it succeeds."""
        return self._work[leaf.rpartition("#")[0]]

    def disk_of(self, slot: str) -> dict[tuple[str, str, int], bytes]:
        return self._disks.setdefault("host" if self.plan.single_host else slot, {})

    def completed(self) -> set[LeafId]:
        """Jobs that a durable log has as completed: that of the run, or of one of its lots."""
        log = self.storage.log(self.run_id)
        lots = [event.body.child for event in log if isinstance(event.body, e.ChildStarted)]
        return completed_in(log).union(*(completed_in(self.storage.log(lot)) for lot in lots))

    def expect_kin(self, run_id: str, events: Any) -> None:
        """Lots have no programs."""

    def fill(self, slot: Slot) -> None:
        busy = any(isinstance(each, JobWorker) and each.slot is slot for each in self.workers())
        if slot in self.plan.slots and not busy and not self.closing:
            name = self._new_name(slot.name)
            self.processes[name] = JobWorker(self, name, slot, self.options)

    def play(self) -> None:
        """From the submission to the end, or to the first promise that is broken."""
        person = self.new_sender("person")
        person.spawn(lambda: _submit(self, person))
        self._agenda.begin()
        self.kernel.run_until(lambda: bool(self.witness.violations), CHAOS_S)
        self._agenda.calm_down()
        finisher = self.new_sender("resetter")
        finisher.spawn(lambda: _reset_until_end(self, finisher))
        deadline = self.kernel.time + _END_S
        while self.kernel.time < deadline and not self.witness.violations and not self._over():
            self.kernel.run_until(lambda: bool(self.witness.violations), self.kernel.time + 1.0)
        if not self.witness.violations:
            self._judge()

    def state(self, run_id: str) -> State:
        """What is durable. A pause of a batch run is part of its life: jobs that failed wait for a reset."""
        return fold(RunId(run_id), self.storage.log(RunId(run_id)))

    def _over(self) -> bool:
        return self.state(self.run_id).status in TERMINAL

    def _judge(self) -> None:
        state = self.state(self.run_id)
        if state.status is not Status.COMPLETED:
            self.witness.broken("no job is lost", f"the run is {state.status} {state.pause} and nothing moves")
            return
        log = self.storage.log(self.run_id)
        wanted = {leaf_id("", each["id"], 1) for each in self.steps}
        if completed_in(log) != wanted:
            self.witness.broken("no job is lost", f"{sorted(wanted - completed_in(log))} never completed")
        self._judge_resets(log)

    def _judge_resets(self, log: list[e.Event]) -> None:
        resets: dict[LeafId, int] = {}
        for event in log:
            for leaf in event.body.leaves if isinstance(event.body, e.JobsReset) else ():
                resets[leaf] = resets.get(leaf, 0) + 1
        ends = {event.body.leaf: event.body.attempt for event in log if isinstance(event.body, e.StepCompleted)}
        for leaf, attempt in ends.items():
            if attempt != 1 + resets.get(leaf, 0):
                text = f"{leaf} completed at attempt {attempt} after {resets.get(leaf, 0)} resets"
                self.witness.broken("every reset is honoured once", text)
            needed = {each.attempt for each in self.ledger.starts if each.leaf == leaf}
            if needed != set(range(1, attempt + 1)):
                self.witness.broken("every reset is honoured once", f"{leaf} ran as attempts {sorted(needed)}")


async def _submit(world: BatchWorld, person: Sender) -> None:
    problems = Problems()
    spec = read_spec({"name": "batch", "steps": world.steps}, problems)
    problems.check("batch", no_lines)
    assert spec is not None
    while True:
        try:
            await submit(person.client, Target(SpecWorkflow(spec), None), world.run_id)
            return
        except Problem as problem:
            person.tell(f"cannot submit: {problem}")
            await asyncio.sleep(1.0)


async def _reset_until_end(world: BatchWorld, person: Sender) -> None:
    """Resets what failed, each reset under an id of its own, and asks for each twice."""
    await _submit(world, person)  # if all who tried before have died
    number, asked = 0, Counter[LeafId]()
    while not world._over():
        held = tuple(leaf.id for leaf in world.state(world.run_id).open.values() if leaf.phase == "held")
        if held:
            number += 1
            asked.update(held)
            if max(asked.values()) > _RESETS_MAX:
                world.witness.broken(
                    "every reset is honoured once", f"{asked.most_common(1)} resets, and it still fails"
                )
            body = codec.encode(ResetJobs(held), "a reset")
            message = Message(world.run_id, "jobs", f"reset-{number}", body, by=person.name)
            for _ in range(2):
                await person.client.store.send(message)
        await asyncio.sleep(20.0)


def play(seed: int, store: str = "sqlite", mutant: Mutant | None = None, *, trace: bool = False) -> BatchWorld:
    """One seed, from its beginning to its end. What it has shown is in its witness."""
    hook, gc_was_on = sys.unraisablehook, gc.isenabled()
    # What is collected when would depend on what was played before.
    gc.disable()
    world = BatchWorld(seed, store, mutant, trace=trace)
    world.mutant.install(world)
    try:
        world.play()
        return world
    finally:
        world.mutant.remove()
        sys.unraisablehook = _ignore
        for execution in (each for worker in world.all_workers() for each in worker.runner.executions.values()):
            execution.detach()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            bury_loops(world.kernel)
            gc.collect()
        world.storage.close()
        sys.unraisablehook = hook
        if gc_was_on:
            gc.enable()


def _ignore(_: object) -> None:
    """What dropped processes still report has no effect."""


if __name__ == "__main__":
    for each in range(int(sys.argv[1]), int(sys.argv[2])):
        found = play(each, "objects" if each % 2 else "sqlite").witness.violations
        print(each, found or "ok", flush=True)
