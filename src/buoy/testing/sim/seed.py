"""One seed, from its plan to its verdict."""

from __future__ import annotations

import gc
import sys
import warnings
from random import Random

import msgspec

from buoy.core.document import Document
from buoy.core.ids import RunId
from buoy.testing.sim.invariants import Evidence, broken, ending_of
from buoy.testing.sim.kernel import bury_loops
from buoy.testing.sim.mutants import MUTANTS, Mutant
from buoy.testing.sim.plan import make_plan
from buoy.testing.sim.process import Process
from buoy.testing.sim.programs import root_of
from buoy.testing.sim.replays import replay_differences
from buoy.testing.sim.story import Story
from buoy.testing.sim.witness import Violation
from buoy.testing.sim.workflows import run_async, run_sync
from buoy.testing.sim.world import World


class Verdict(msgspec.Struct):
    """What a seed has shown."""

    seed: int
    store: str
    mutant: str
    violations: list[Violation]
    story: list[str]
    turns: int
    virtual_s: float
    runs: int
    events: int

    @property
    def command(self) -> str:
        """Plays it again."""
        mutant = "" if self.mutant == "none" else f" --mutant {self.mutant}"
        return f"python -m buoy.testing.sim --seed {self.seed} --store {self.store} --trace{mutant}"


def run_seed(seed: int, store: str, mutant: str = "none", *, trace: bool = False) -> Verdict:
    """Plays one seed and judges it. The same seed gives the same verdict, with the same story."""
    hook, gc_was_on = sys.unraisablehook, gc.isenabled()
    # What is collected when would depend on what was played before.
    gc.disable()
    try:
        return _play(seed, store, mutant, Story(whole=trace))
    finally:
        # What dropped processes still have to say concerns nobody.
        sys.unraisablehook = _ignore
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        sys.unraisablehook = hook
        if gc_was_on:
            gc.enable()


def _play(seed: int, store: str, mutant: str, story: Story) -> Verdict:
    chosen = Mutant() if mutant == "none" else MUTANTS[mutant]()
    world = World(seed, make_plan(seed, store), chosen, story)
    chosen.install()
    try:
        world.play()
        if not world.witness.violations:
            world.witness.violations += _judge(world)
        return _verdict(world, mutant)
    finally:
        chosen.remove()
        for execution in (each for worker in world.all_workers() for each in worker.runner.executions.values()):
            execution.detach()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            bury_loops(world.kernel)
        world.storage.close()


def _verdict(world: World, mutant: str) -> Verdict:
    return Verdict(
        seed=world.seed,
        store=world.plan.store,
        mutant=mutant,
        violations=list(world.witness.violations),
        story=world.story.lines(),
        turns=world.kernel.turns,
        virtual_s=world.kernel.time,
        runs=len(world.programs),
        events=sum(world.state(run_id).head_seq for run_id in world.programs),
    )


def _judge(world: World) -> list[Violation]:
    """All invariants of all runs, on what the store shows to a process that was not there."""
    documents = _documents(world)
    found: list[Violation] = []
    rng = Random(f"replay {world.seed}")
    ends = {run_id: ending_of(world.storage.log(RunId(run_id))) for run_id in world.programs}
    for run_id in world.programs:
        evidence = _evidence(world, run_id, documents.get(run_id))
        evidence.ends = ends
        found += broken(evidence)
        created = evidence.state.created
        if created is not None:
            workflow = run_async if created.workflow == run_async.name else run_sync
            for text in replay_differences(run_id, evidence.log, workflow, rng, world.kernel):
                found.append(Violation("a replay gives the same end", f"{run_id}: {text}"))
    return found


def _evidence(world: World, run_id: str, document: Document | None) -> Evidence:
    witness = world.witness
    return Evidence(
        run_id=run_id,
        log=world.storage.log(RunId(run_id)),
        inbox=world.storage.inbox(RunId(run_id)),
        document=document,
        program=world.programs[run_id],
        started=run_id in witness.starts,
        cancelled=root_of(run_id) in world.cancelled,
        writers=witness.writers,
        commits=[commit for commit in witness.commits if commit.run_id == run_id],
        sends=[sent for sent in witness.sends if sent.run_id == run_id],
        bodies=[body for body in witness.bodies if body.run_id == run_id],
    )


def _documents(world: World) -> dict[str, Document]:
    """The runs as a new process reads them, one by one and in a list."""
    reader = Process(world, "reader")
    found: dict[str, Document] = {}

    async def read() -> None:
        store = reader.open_store()
        for run_id in world.programs:
            record = await store.run(RunId(run_id))
            if record is not None:
                found[run_id] = record.document

    reader.spawn(read)
    world.kernel.run_until(lambda: False, world.kernel.time + 30.0)
    return found


def _ignore(error: sys.UnraisableHookArgs) -> None:
    """A coroutine objected to being dropped."""
