"""The rules about the whole world can fail, too: rest, ends, stops, declared deaths, unforeseen errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import msgspec
import pytest
from simulator import process as process_module
from simulator import seed as seed_module
from simulator.host import Walls
from simulator.kernel import bury_loops
from simulator.mutants import Mutant
from simulator.plan import LAB, Post, RunPlan, Slot, restricted
from simulator.planning import make_plan
from simulator.programs import Node
from simulator.rest import adopters, has_ended, unrest
from simulator.seed import run_seed
from simulator.sender import Sender
from simulator.story import Story
from simulator.worker import Worker
from simulator.world import World

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.limits import SUSPECT_AFTER_S
from buoy.core.log import events as e
from buoy.core.log.document import Document, document
from buoy.core.log.state import fold
from buoy.ports.records import Committed, FencedOut, Held, Outcome, Released, Write

RUN = "run-1"


def _world(*posts: Post) -> World:
    """One worker on one host, and nothing that happens."""
    plan = restricted(make_plan(1, "sqlite"), [])
    return World(1, msgspec.structs.replace(plan, posts=list(posts)), Mutant(), Story())


@pytest.fixture
def world() -> Iterator[World]:
    made = _world()
    yield made
    _close(made)


def _close(world: World) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        bury_loops(world.kernel)
    world.storage.close()


def _rules(world: World) -> set[str]:
    return {violation.rule for violation in world.witness.violations}


def _know(world: World, run_id: str, *bodies: e.Body) -> None:
    """The world has seen this log."""
    log = [e.Event(number, 1.0, body, nonce=f"c{number}") for number, body in enumerate(bodies, 1)]
    world._logs[run_id] = (log, fold(RunId(run_id), log))


def _doc(stack: str | None = None, env: str | None = None) -> Document:
    created = e.WorkflowCreated(workflow="sim_adopted", input=msgspec.Raw(b"{}"), stack=stack, env=env)
    return document(fold(RunId(RUN), [e.Event(1, 1.0, created)]))


CREATED = e.WorkflowCreated(workflow="sim_async", input=msgspec.Raw(b"{}"))
CLAIMED = e.Claimed(runner="w1", cause="created")
CHILD = e.ChildStarted(leaf=LeafId("sim_sync#1"), child=RunId("c"), workflow="sim_sync", input=msgspec.Raw(b"{}"))
DONE = e.WorkflowCompleted(result=msgspec.Raw(b"1"))


def test_a_parent_whose_child_has_ended_or_was_never_born_is_restless(world: World) -> None:
    _know(world, RUN, CREATED, CLAIMED, CHILD)
    assert list(unrest(world, RUN)) == ["sim_sync#1 waits for c, which is not there"]
    _know(world, "c", CREATED, CLAIMED)
    assert list(unrest(world, RUN)) == []
    _know(world, "c", CREATED, CLAIMED, DONE)
    assert list(unrest(world, RUN)) == ["sim_sync#1 waits for c, which is completed"]


def test_a_child_that_goes_on_as_another_run_has_not_ended_before_that_one(world: World) -> None:
    _know(world, RUN, CREATED, CLAIMED, CHILD)
    _know(world, "c", CREATED, CLAIMED, msgspec.structs.replace(DONE, continued_as=RunId("c.c2")))
    assert list(unrest(world, RUN)) == []
    assert not has_ended(world, "c")
    _know(world, "c.c2", CREATED, CLAIMED, DONE)
    assert has_ended(world, "c")
    assert list(unrest(world, RUN)) == ["sim_sync#1 waits for c, which is completed"]


FAILED = e.WorkflowFailed(error=e.ErrorInfo(type="Flaky", message="oh"))


def test_a_child_that_outlives_its_parent_is_restless(world: World) -> None:
    born = msgspec.structs.replace(CREATED, parent=e.Parent(RunId(RUN), LeafId("sim_sync#1")))
    waits = e.SignalWaited(leaf=LeafId("signal:go#1"), name="go")
    _know(world, "c", born, CLAIMED, waits)
    for gives_up in (FAILED, e.WorkflowCancelled(), e.LeafCancelled(leaf=LeafId("sim_sync#1"))):
        _know(world, RUN, CREATED, CLAIMED, CHILD, gives_up)
        assert list(unrest(world, "c")) == ["its parent run-1 has given it up, and it lives on"]
    for stays in ((CHILD,), (msgspec.structs.replace(CHILD, detach=True), FAILED)):
        _know(world, RUN, CREATED, CLAIMED, *stays)
        assert list(unrest(world, "c")) == []
    _know(world, RUN, CREATED, CLAIMED, CHILD, FAILED)
    _know(world, "c", born, CLAIMED, waits, e.WorkflowCancelled())
    assert list(unrest(world, "c")) == []


def test_a_run_that_was_promised_and_never_came_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _know(world, RUN, CREATED, CLAIMED, msgspec.structs.replace(CHILD, detach=True), DONE)
    world.programs[RUN] = world.programs["c"] = Node("seq", "main")
    monkeypatch.setattr(World, "_goes_on_until", lambda world, done: done())
    world._come_to_an_end()
    assert _rules(world) == {"what was promised is started"}


def test_a_run_that_waits_for_code_that_is_there_is_restless(world: World) -> None:
    _know(world, RUN, CREATED, CLAIMED, e.Paused(reason="version", detail="no code fits"))
    assert list(unrest(world, RUN)) == ["it waits for other code, which is there: no code fits"]
    _know(world, RUN, CREATED, CLAIMED, e.Paused(reason="user"))
    assert list(unrest(world, RUN)) == []


@pytest.mark.parametrize(
    ("post", "doc", "takes"),
    [
        (Post("p", adopt=True), _doc(), True),
        (Post("p", adopt=True), _doc("north"), True),
        (Post("p", "north", adopt=True), _doc(), True),
        (Post("p", "north", adopt=True), _doc("south"), False),
        (Post("p", adopt=True), _doc(env=LAB), False),
        (Post("p", env=LAB, adopt=True), _doc(), False),
        (Post("p"), _doc(), False),
    ],
)
def test_a_foreign_run_is_restless_if_a_sweeper_of_its_scope_was_asked_to_take_it_in(
    post: Post, doc: Document, takes: bool
) -> None:
    world = _world(post)
    world.foreign[RUN] = doc
    assert adopters(world, doc) == (["p"] if takes else [])
    assert bool(list(unrest(world, RUN))) == takes
    _close(world)


def test_a_burial_of_the_living_is_noticed(world: World) -> None:
    world.fill(world.plan.slots[0])
    (worker,) = world.workers()
    other = world.new_sender("other")
    world.gone(RunnerId(worker.name), by=worker)
    assert _rules(world) == set()
    world.gone(RunnerId(worker.name), by=other)
    assert _rules(world) == {"no living runner is declared dead"}


@pytest.mark.parametrize(
    ("silent_s", "broken"), [(SUSPECT_AFTER_S - 1.0, {"no clock buries the living"}), (500.0, set())]
)
def test_a_burial_of_one_that_beats_on_another_machine_is_noticed(silent_s: float, broken: set[str]) -> None:
    plan = msgspec.structs.replace(restricted(make_plan(1, "sqlite"), []), single_host=False)
    world = World(1, plan, Mutant(), Story())
    world.faults.on = False
    world.fill(world.plan.slots[0])
    (worker,) = world.workers()
    world.kernel.run_until(lambda: False, 1.0)
    worker.beaten_at = world.kernel.time - silent_s
    other = world.new_sender("other")

    async def bury() -> None:
        await other.open_store().declare_dead(RunnerId(worker.name), "silent", cause="taken_over", evidence={})

    other.spawn(bury)
    world.kernel.run_until(lambda: worker.gone, 2.0)
    assert _rules(world) == broken
    _close(world)


def test_who_only_started_a_run_leaves_no_time_by_its_own_clock_to_others() -> None:
    """The clock of the starter is hours ahead, and it does not serve the queue of the run, which waits for a time."""
    program = Node("seq", "main", (Node("sleep", "z1", takes_s=20.0), Node("step", "s1")))
    run = RunPlan("run-1", 1.0, program, is_async=True, by_worker=True, twice=False, pick=0.9)
    slots = [Slot("worker-1", ("default",)), Slot("worker-2", ("side",))]
    plan = msgspec.structs.replace(
        restricted(make_plan(1, "sqlite"), []), single_host=False, apart_s=10_800.0, store_clock=False, runs=[run],
        slots=slots, waiting_runs_max=0,
    )  # fmt: skip
    seed = next(
        seed for seed in range(100)
        if Walls(seed, plan).of("worker-2").skew_s - Walls(seed, plan).of("worker-1").skew_s > 7_200.0
    )  # fmt: skip
    world = World(seed, plan, Mutant(), Story(whole=True))
    world.faults.on = False
    world.play()
    assert world.witness.violations == []
    assert any("worker-2" in line and "run-1: gave the task back" in line for line in world.story.lines())
    _close(world)


def test_the_dead_may_be_buried(world: World) -> None:
    world.fill(world.plan.slots[0])
    (worker,) = world.workers()
    worker.crash("here")
    world.gone(RunnerId(worker.name), by=world.new_sender("other"))
    assert _rules(world) == set()


def test_a_worker_that_does_not_stop_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "stop", lambda worker, grace_s: False)
    world.play()
    assert _rules(world) == {"workers stop"}


def test_an_error_that_nobody_foresaw_is_noticed(world: World) -> None:
    sender = world.new_sender("somebody")
    sender.look_at("Unavailable: no answer")
    sender.look_at(None)
    assert _rules(world) == set()
    sender.look_at("KeyError: 'run-1'")
    assert _rules(world) == {"unforeseen error"}


def test_a_world_that_never_comes_to_rest_is_noticed(world: World) -> None:
    world.kernel.turns_max = 10
    world.play()
    assert "bounded" in _rules(world)


def test_a_log_that_cannot_be_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(found: object) -> list[object]:
        raise seed_module.CorruptLog("it is torn")

    monkeypatch.setattr(seed_module, "broken", torn)
    verdict = run_seed(1, "sqlite", only=[name for name in make_plan(1, "sqlite").names() if name.startswith("run-1")])
    assert {each.rule for each in verdict.violations} == {"logs can be read"}
    assert verdict.violations[0].text == "run-1: it is torn"


def test_a_body_in_a_worker_that_knows_that_it_is_gone_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill(world.plan.slots[0])
    (worker,) = world.workers()
    context = SimpleNamespace(run_id=RUN, leaf="work#1", attempt=1, key="k")
    monkeypatch.setattr(process_module, "info", lambda: context)
    rule = "who was declared gone starts nothing"
    with worker.body():
        assert rule not in _rules(world)
    worker.runner.gone = "silent"
    with worker.body():
        assert rule in _rules(world)


def test_a_run_that_is_given_back_while_it_is_driven_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = world.new_sender("somebody")
    store = sender.open_store()

    async def done(*args: object) -> bool:
        return True

    monkeypatch.setattr(type(store._target._store), "release", done)  # type: ignore[attr-defined]
    for drives in (False, True):
        monkeypatch.setattr(Sender, "drives", lambda sender, run_id, drives=drives: drives)
        sender.spawn(lambda: store.release(RunId(RUN), RunnerId("w"), Released(due_at=None, now=0.0)))  # type: ignore[arg-type,return-value]
        world.kernel.run_until(lambda: False, world.kernel.time + 1.0)
        assert ("what is driven is not given back" in _rules(world)) == drives


@pytest.mark.parametrize("there_before", [False, True])
def test_a_run_that_is_given_back_while_it_is_created_is_noticed_if_it_is_new(
    world: World, monkeypatch: pytest.MonkeyPatch, there_before: bool
) -> None:
    """The creation of a run that exists is refused: the process never drove it."""
    sender = world.new_sender("somebody")
    store = sender.open_store()
    created = e.Event(1, 1.0, e.WorkflowCreated(workflow="w", version="1", input=msgspec.Raw(b"{}")), nonce="c1")
    write = Write(RunId(RUN), 0, (created,), document(fold(RunId(RUN), [created])), Held(RunnerId("w")))
    outcome = FencedOut(1) if there_before else Committed(1)

    async def released(*args: object) -> bool:
        return True

    async def committed(*args: object) -> list[Outcome]:
        return [outcome]

    monkeypatch.setattr(Sender, "creates", lambda sender, run_id: True)
    monkeypatch.setattr(type(store._target._store), "release", released)  # type: ignore[attr-defined]
    monkeypatch.setattr(type(store._target._store), "commit", committed)  # type: ignore[attr-defined]

    async def play() -> None:
        await store.release(RunId(RUN), RunnerId("w"), Released(due_at=None, now=0.0))
        await store.commit([write])

    sender.spawn(play)
    world.kernel.run_until(lambda: False, world.kernel.time + 1.0)
    assert ("what is driven is not given back" in _rules(world)) != there_before


def test_code_that_ends_its_process_reaches_nobody_any_more(world: World) -> None:
    sender = world.new_sender("somebody")
    found: list[object] = []

    async def look() -> None:
        sender.crash("here")
        found.append(await sender.open_store().run(RunId(RUN)))

    sender.spawn(look)
    world.kernel.run_until(lambda: False, world.kernel.time + 5.0)
    assert found == []
