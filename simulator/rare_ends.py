"""Rare ends: programs that end in ways in which others do not.

A step whose error is not to be tried again; code that cancels its own run, with an effect to undo, with a child that
lives, or as a child whose parent sees it; a cancelled run whose clean-up fails; a child that continues as another run.
Some are families of an environment apart.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from simulator.plan import CHAOS_S, LAB, Plan, RunPlan
from simulator.programs import RETRIES, Node
from simulator.windows import Made, acts_on

_DECLINE = Node("decline", "x1")


def ended_rarely(plan: Plan, rng: Random) -> Plan:
    """One of these in every second seed."""
    if rng.random() >= 0.5:
        return plan
    program, kinds = rng.choice(_ENDS)(rng)
    name, at = "rare-1", rng.uniform(0.5, CHAOS_S / 3)
    by_worker, pick, apart = rng.random() < 0.6, rng.random(), rng.random() < 0.7
    run = RunPlan(name, at, program, is_async=True, by_worker=by_worker, twice=False, pick=pick)
    if apart and any(slot.env == LAB for slot in plan.slots):
        run = replace(run, env=LAB, by_worker=False)
    return replace(plan, runs=[*plan.runs, run], acts=[*plan.acts, *acts_on(rng, name, at, kinds)])


def _main(*kids: Node) -> Node:
    return Node("seq", "main", kids)


def _hopeless(rng: Random) -> Made:
    """A step that fails for good at its first attempt; its code gets over that, or not."""
    first = rng.choice((Node("book", "b1"), Node("step", "s1", takes_s=0.5)))
    return _main(first, Node("brittle", "h1", catch=rng.random() < 0.5), Node("step", "s2")), ("retry", "jump")


def _declines(rng: Random) -> Made:
    """Code that cancels its own run."""
    first = rng.choice((Node("book", "b1"), Node("lease", "l1"), Node("ask", "a1", answer="red"), Node("step", "s1")))
    return _main(first, Node("step", "s2", takes_s=rng.choice((0.0, 0.5))), _DECLINE), ("answer", "jump")


def _declining_child(rng: Random) -> Made:
    """The same in a child, whose parent gets over that, or fails."""
    program = _main(Node("step", "n1", takes_s=rng.choice((0.0, 1.0))), Node("decline", "n2"))
    child = Node("child", "c1", (program,), name="sim_async", catch=rng.random() < 0.5)
    return _main(Node("book", "b1"), child, Node("step", "s1")), ("jump",)


def _declines_beside(rng: Random) -> Made:
    """The same while a child of the run lives and waits."""
    waits = _main(Node("sync", "n1"), Node("signal", "n2", name="never"))
    child = Node("child", "c1", (waits,), name="sim_async", catch=False)
    slow = Node("seq", "q1", (Node("step", "s1", takes_s=rng.choice((0.5, 3.0))), _DECLINE))
    return _main(Node("gather", "g1", (child, slow))), ()


def _cleans_up_badly(rng: Random) -> Made:
    """Code whose clean-up fails, whether it came to its end or is cancelled before."""
    waits = rng.choice((Node("signal", "w1", name="go"), Node("sleep", "z1", takes_s=20.0), Node("step", "s1")))
    return _main(Node("cleanup", "e1", (waits,), fails=RETRIES + 1), Node("step", "s2")), ("cancel", "say")


def _handing_child(rng: Random) -> Made:
    """A child that continues as another run, whose end is the child's."""
    program = _main(Node("step", "n1", takes_s=rng.choice((0.0, 0.5))), Node("signal", "n2", name="go"))
    child = Node("child", "c1", (replace(program, again=rng.choice((1, 2))),), name="sim_async")
    return _main(child, Node("step", "s1")), ("say", "jump", "say", "answer", "answer")


_ENDS: tuple[Callable[[Random], Made], ...] = (
    _hopeless, _hopeless, _declines, _declining_child, _declines_beside, _cleans_up_badly,
    _handing_child, _handing_child,
)  # fmt: skip
