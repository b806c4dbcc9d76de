"""One seed, from its plan to its verdict."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Collection
from random import Random

import msgspec

from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.schedule.schedule import Schedule
from buoy.errors import CorruptLog
from simulator.aftermath import look_after, what_is_left
from simulator.births import asked_by_kin
from simulator.evidence import Asked, Evidence, Reach
from simulator.invariants import endings_of
from simulator.kernel import bury_loops
from simulator.mutants import Mutant
from simulator.plan import Plan, restricted
from simulator.planning import make_plan
from simulator.planted import MUTANTS
from simulator.programs import root_of
from simulator.replays import replay_differences
from simulator.rules import broken
from simulator.sender import workflow_and_input
from simulator.specs import workflow_of
from simulator.story import Story
from simulator.timetables import RULE, wrong_fires
from simulator.witness import Sent, Violation
from simulator.worker import Worker
from simulator.workflows import FIRST
from simulator.world import World


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
    # What of the plan took part, and the faults that struck: all that could be left out of the story.
    parts: list[str]
    # How much of what: faults by kind, what people did, recoveries by cause.
    faults: dict[str, int] = {}
    acts: dict[str, int] = {}
    recoveries: dict[str, int] = {}
    only: tuple[str, ...] | None = None
    narrow: bool = False

    @property
    def command(self) -> str:
        """Plays it again."""
        mutant = "" if self.mutant == "none" else f" --mutant {self.mutant}"
        only = "" if self.only is None else f" --only {','.join(self.only) or 'nothing'}"
        narrow = " --narrow" if self.narrow else ""
        return f"python -m simulator --seed {self.seed} --store {self.store} --trace{mutant}{narrow}{only}"


def run_seed(
    seed: int, store: str, mutant: str = "none", *, trace: bool = False, only: Collection[str] | None = None,
    narrow: bool = False,
) -> Verdict:  # fmt: skip
    """Plays one seed and judges it. The same seed gives the same verdict, with the same story.

    `only`: with nothing in it but what is named, of the plan and of the faults (see `Verdict.parts`). `narrow`: with
    a plan of the earlier kind (see `widening`).
    """
    hook, gc_was_on = sys.unraisablehook, gc.isenabled()
    # What is collected when would depend on what was played before.
    gc.disable()
    # The collection at the end looks only at what this seed made.
    gc.freeze()
    try:
        return _play(make_plan(seed, store, narrow=narrow), seed, mutant, Story(whole=trace), only, narrow=narrow)
    finally:
        # What dropped processes still report has no effect.
        sys.unraisablehook = _ignore
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        gc.unfreeze()
        sys.unraisablehook = hook
        if gc_was_on:
            gc.enable()


def _play(plan: Plan, seed: int, mutant: str, story: Story, only: Collection[str] | None, *, narrow: bool) -> Verdict:
    chosen = Mutant() if mutant == "none" else MUTANTS[mutant]()
    world = World(seed, plan if only is None else restricted(plan, only), chosen, story)
    chosen.install(world)
    try:
        world.play()
        if not world.witness.violations:
            world.witness.violations += _judge(world)
        return _verdict(world, mutant, narrow=narrow)
    finally:
        chosen.remove()
        for execution in (each for worker in world.all_workers() for each in worker.runner.executions.values()):
            execution.detach()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            bury_loops(world.kernel)
        world.storage.close()


def _verdict(world: World, mutant: str, *, narrow: bool) -> Verdict:
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
        parts=[*world.plan.names(), *world.faults.struck],
        faults=world.faults.counts,
        acts=world.acts,
        recoveries=_recoveries(world),
        only=world.plan.only,
        narrow=narrow,
    )


def _recoveries(world: World) -> dict[str, int]:
    """Takeovers and branches, by cause."""
    found: dict[str, int] = {}
    for run_id in world.programs:
        for event in world.look(run_id)[0]:
            body = event.body
            if isinstance(body, e.WorkflowRecovered):
                found[body.finding] = found.get(body.finding, 0) + 1
            elif isinstance(body, e.Claimed) and body.cause in ("taken_over", "interrupted"):
                found[body.cause] = found.get(body.cause, 0) + 1
    return found


def _judge(world: World) -> list[Violation]:
    """All invariants of all runs, on what the store shows to a process that was not there."""
    after = look_after(world)
    found = [*_fires(world, after.schedules), *what_is_left(world, after)]
    rng = Random(f"replay {world.seed}")
    asked = _asked(world)
    born = world.born()
    buried = frozenset(each for each in born if world.final_log(each)[1])
    ends: dict[str, list[e.Body]] = {run_id: endings_of(world.final_log(run_id)[0]) for run_id in born}
    for run_id in world.programs:
        try:
            evidence = _evidence(world, run_id, after.documents.get(run_id))
            evidence.asked, evidence.born, evidence.buried = asked.get(run_id), born, buried
            evidence.ends = ends
            found += broken(evidence)
            if not world.plan.deploys:
                found += _replayed(world, evidence, rng)
        except CorruptLog as error:
            found.append(Violation("logs can be read", f"{run_id}: {error}"))
    return found


def _replayed(world: World, evidence: Evidence, rng: Random) -> list[Violation]:
    """What a process that knows nothing makes of the log."""
    created = evidence.state.created
    if created is None:
        return []
    spec = evidence.program.op == "spec"
    workflow = workflow_of(evidence.program) if spec else world.releases[FIRST].named(created.workflow)
    rule = "a replay gives the same end"
    differences = replay_differences(evidence.run_id, evidence.log, workflow, rng, world.kernel)
    return [Violation(rule, f"{evidence.run_id}: {text}") for text in differences]


def _evidence(world: World, run_id: str, document: Document | None) -> Evidence:
    witness = world.witness
    log, purged = world.final_log(run_id)
    clocks_set = _clocks_set(world)
    return Evidence(
        run_id=run_id,
        log=log,
        inbox=world.inbox(run_id),
        document=document,
        program=world.programs[run_id],
        started=run_id in witness.starts,
        cancelled=root_of(run_id) in world.cancelled,
        purged=purged,
        damaged_at=world.damaged.get(run_id),
        deployed=world.plan.deploys,
        earlier=world.look(run_id)[0],
        runners={
            **{worker.name: worker.info for worker in world.all_workers()},
            **{lookout.name: lookout.info for lookout in world.lookouts()},
        },
        scopes=_scopes(world),
        touches=[touched for touched in witness.touches if touched.run_id == run_id],
        foreign=world.foreign.get(run_id),
        writers=witness.writers,
        commits=[commit for commit in witness.commits if commit.run_id == run_id],
        sends=_sends(world, run_id, purged=purged),
        bodies=[body for body in witness.bodies if body.run_id == run_id],
        backs=witness.backs.get(run_id, {}),
        keeps=witness.keeps.get(run_id, {}),
        told=world.told_by(run_id),
        calm_at=world.calm_at,
        code_deaths=world.code_deaths.get(run_id, 0),
        clocks_set=clocks_set,
        lasted_s=world.kernel.time if world.plan.store_clock and not clocks_set else None,
    )


def _clocks_set(world: World) -> bool:
    return any(blow.kind == "clock" for blow in world.plan.blows)


def _sends(world: World, run_id: str, *, purged: bool) -> list[Sent]:
    """What the store called sent to a run. What comes to an ended run during its purge goes with it."""
    most = world.sent_before[run_id] if purged else None
    return [sent for sent in world.witness.sends[:most] if sent.run_id == run_id]


def _asked(world: World) -> dict[str, Asked]:
    """How each run was to begin: by its parent or its predecessor, or by the plan."""
    found = asked_by_kin({run_id: world.final_log(run_id)[0] for run_id in world.born()})
    for run in (each for each in world.plan.runs if not each.foreign):
        log = world.final_log(run.name)[0]
        starter = world.processes.get(world.witness.writers.get(log[0].nonce or "", "")) if log else None
        stack, env = (starter.slot.stack, starter.slot.env) if isinstance(starter, Worker) else (run.stack, run.env)
        workflow, given = workflow_and_input(world.releases[FIRST], run)
        found[run.name] = Asked(
            workflow.name, msgspec.json.decode(given), workflow.recovery, workflow.queue, stack, env
        )  # fmt: skip
    for run_id in world.born() - found.keys():
        created = world.final_log(run_id)[0][0].body
        name = (created.by or "").removeprefix("schedule ") if isinstance(created, e.WorkflowCreated) else ""
        if name in world.schedules:
            by = world.schedules[name]
            found[run_id] = Asked(by.workflow, msgspec.json.decode(by.input), by.policy, by.queue, by.stack, by.env)
    return found


def _scopes(world: World) -> dict[str, Reach]:
    """What workers and sweepers were told to care for, as the plan has it."""
    found = {worker.name: Reach(worker.slot.stack, worker.slot.env) for worker in world.all_workers()}
    for lookout in world.lookouts():
        found[lookout.name] = Reach(lookout.post.stack, lookout.post.env, lookout.post.adopt)
    return found


def _fires(world: World, schedules: dict[str, Schedule]) -> list[Violation]:
    """What is wrong with the runs that were started by the clock."""
    outbox: dict[str, e.WorkflowCreated] = {}
    born_at: dict[str, float] = {}
    for run_id in world.programs if world.schedules else ():
        first = world.final_log(run_id)[0][:1]
        if first and isinstance(first[0].body, e.WorkflowCreated):
            outbox[run_id] = first[0].body
            born_at[run_id] = first[0].at
    pairs = [(added, schedules.get(name)) for name, added in world.schedules.items()]
    known = None if _clocks_set(world) else born_at
    return [Violation(RULE, text) for added, stored in pairs for text in wrong_fires(added, stored, outbox, known)]


def _ignore(error: sys.UnraisableHookArgs) -> None:
    """A coroutine objected to being dropped."""
