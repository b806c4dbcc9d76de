"""Long windows: programs that stay for a while in a state that others only pass through, and a visitor of all runs.

A step that backs off for seconds; an undoing that does, or fails for good; a run that is paused and then cancelled; a
recovery that begins a run again after its question and its child came to an end; children that are given up at once.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from simulator.plan import CHAOS_S, Act, Plan, RunPlan
from simulator.programs import RETRIES, Node
from simulator.windows import Made, acts_on


def stayed(plan: Plan, rng: Random) -> Plan:
    """Some of these programs, and what people do to them and to all others."""
    runs, acts = list(plan.runs), list(plan.acts)
    for number in range(1, rng.randint(3, 5)):
        is_async = rng.random() < 0.8
        make = rng.choice(_ASYNC if is_async else _SYNC)
        program, kinds = make(rng)
        name, at = f"stay-{number}", rng.uniform(0.5, CHAOS_S / 3)
        by_worker, pick, policy = rng.random() < 0.6, rng.random(), rng.choice(_POLICIES)
        run = RunPlan(name, at, program, is_async=is_async, by_worker=by_worker, twice=False, pick=pick)
        # A restart under other names, without a migration, has other keys.
        policy = "resume" if make is not _begins_again or (plan.renames and policy == "restart") else policy
        runs.append(replace(run, policy=policy))
        acts += acts_on(rng, name, at, kinds)
    return replace(plan, runs=runs, acts=[*acts, *_visits(rng, [run.name for run in runs if not run.foreign])])


def _visits(rng: Random, runs: list[str]) -> list[Act]:
    """One who goes from run to run: forges answers, and in some seeds calls back, pauses or cancels."""
    kinds = ["forge", "forge", "answer"]
    kinds += ["jump", "jump", "retry"] if rng.random() < 0.5 else []
    kinds += ["pause", "resume", "resume"] if rng.random() < 0.5 else []
    kinds += ["cancel"] if rng.random() < 0.3 else []
    found: list[Act] = []
    at = 0.0
    while (at := at + rng.expovariate(0.3)) < CHAOS_S:
        name, kind, run = f"visit-{len(found) + 1}", rng.choice(kinds), rng.choice(runs)
        found.append(Act(name, at, "visitor", kind, run, rng.random(), rng.random()))
    return found


# ---- programs, each with what people may do during them


def _main(*kids: Node) -> Node:
    return Node("seq", "main", kids)


def _fails(takes_s: float = 0.0) -> Node:
    return Node("step", "last", takes_s=takes_s, fails=RETRIES + 1, catch=False)


def _stays(rng: Random, id: str) -> Node:
    """A part that ends only by a message."""
    return rng.choice(
        (Node("ask", id, answer="red"), Node("signal", id, name="go"), Node("ask", id, answer="any text"))
    )


def _backs_off(rng: Random) -> Made:
    """A step that waits for its next attempt, while the run is called back, paused or taken over."""
    beside = Node("seq", "q1", (Node("step", "s1"), _stays(rng, "w1"), Node("book", "b1")))
    both = Node("gather", "g1", (Node("stubborn", "t1", fails=rng.choice((1, 2, 2))), beside))
    end = (_fails(),) if rng.random() < 0.3 else ()
    kinds = rng.choice((("jump", "answer", "retry", "jump", "say"), ("pause", "resume", "answer"), ("jump", "jump")))
    return _main(Node("step", "s0"), both, Node("step", "s2"), *end), kinds


def _backs_off_alone(rng: Random) -> Made:
    """The same for code that waits in a thread."""
    step = Node("stubborn", "t1", fails=rng.choice((1, 2)))
    return _main(Node("book", "b1"), step, Node("sync", "s1")), ("jump", "retry", "pause", "resume")


def _undoes_for_long(rng: Random) -> Made:
    """Effects that take long to undo, or cannot be undone."""
    kinds = (Node("lease", "l1"), Node("lease", "l2"), Node("book", "bx"), Node("reserve", "r1", takes_s=0.5))
    done = rng.sample(kinds, rng.randint(2, 3))
    acts = rng.choice((("pause", "resume"), ("retry", "jump"), ("jump", "pause", "resume"), ()))
    if rng.random() < 0.7:
        return _main(*done, _fails()), acts
    return _main(*done, _stays(rng, "w1"), Node("sleep", "z1", takes_s=5.0)), ("cancel", *acts)


def _paused_and_cancelled(rng: Random) -> Made:
    """A run that is cancelled while it is paused, with a child or an effect to see to."""
    child = Node("child", "c1", (_main(Node("sync", "n1"), Node("signal", "n2", name="go")),), name="sim_async")
    waits = rng.choice((child, Node("signal", "w1", name="go"), Node("sleep", "z1", takes_s=20.0)))
    first = rng.choice((Node("book", "b1"), Node("step", "s1")))
    return _main(first, waits, Node("step", "s2")), ("pause", "cancel", "resume", "say")


def _begins_again(rng: Random) -> Made:
    """A run whose question was answered and whose child ended before its process dies."""
    child = Node("child", "c1", (_main(Node("sync", "n1")),), name="sim_sync")
    kids = [Node("ask", "a1", answer="green"), child, Node("signal", "w1", name="go"), Node("step", "s1", takes_s=0.5)]
    rng.shuffle(kids)
    both = Node("gather", "g1", tuple(kids[: rng.randint(2, 4)]))
    first = (Node("step", "s0"),) if rng.random() < 0.5 else ()
    deadly = Node("deadly", "d1", fails=rng.choice((1, 1, 2, 3)))
    return _main(*first, both, deadly, Node("step", "s2")), ("answer", "say", "answer")


def _gives_up_at_once(rng: Random) -> Made:
    """Children that are given up before they can have begun."""
    waits = _main(Node("sync", "n1"), Node("signal", "n2", name="never"))
    firsts = []
    for number in range(1, rng.randint(3, 5)):
        child = Node("child", f"c{number}", (waits,), name="sim_async")
        quick = Node("sleep", f"z{number}", takes_s=rng.choice((0.0, 0.01)))
        firsts.append(Node("first", f"f{number}", (child, quick)))
    return _main(*firsts, Node("step", "s1", takes_s=rng.choice((0.0, 3.0)))), ("jump",) if rng.random() < 0.3 else ()


def _hands_over(rng: Random) -> Made:
    """A run that continues as another one, with effects and a child before."""
    child = Node("child", "c1", (_main(Node("sync", "n1")),), name="sim_sync")
    program = _main(rng.choice((child, Node("book", "b1"))), _stays(rng, "w1"), Node("step", "s1"))
    return replace(program, again=rng.choice((1, 2))), ("answer", "say", "pause", "resume", "answer")


def _hands_over_in_a_thread(rng: Random) -> Made:
    program = _main(Node("book", "b1"), _stays(rng, "w1"), Node("sync", "s1"))
    return replace(program, again=1), ("answer", "say", "cancel" if rng.random() < 0.3 else "say")


_ASYNC = (
    *(_backs_off, _backs_off, _undoes_for_long, _undoes_for_long, _paused_and_cancelled, _begins_again, _begins_again),
    *(_gives_up_at_once, _hands_over),
)
_SYNC = (_backs_off_alone, _undoes_for_long, _hands_over_in_a_thread)
# What is to become of a run that its process leaves behind; most begin again.
_POLICIES = ("restart", "restart", "restart", "resume", "hold", "fail")
