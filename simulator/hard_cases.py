"""Hard cases: pointed windows for planted bugs that random stories missed.

A hold that outlasts the pause that it asked for; a child that is given up by the last commit of its parent; a child
that a jump leaves behind; an end that a jump takes back; a restart after a child ended; families of an environment
apart; a step that is not to be tried again; a step that is given up and must be undone; a parent that fails by its
policy.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulator.plan import LAB, Plan
from simulator.pointed_windows import Point, with_points
from simulator.programs import RETRIES, Node


def hardened(plan: Plan, rng: Random) -> Plan:
    """One to three of these in every second seed."""
    return plan if rng.random() >= 0.5 else with_points(plan, rng, _CASES, "case")


def hardened_later(plan: Plan, rng: Random) -> Plan:
    """One to three of those that came last, in every fourth seed."""
    return plan if rng.random() >= 0.25 else with_points(plan, rng, _LATER_CASES, "later")


def _main(*kids: Node) -> Node:
    return Node("seq", "main", kids)


def _waiting_child(id: str, name: str = "never") -> Node:
    program = _main(Node("sync", "n1"), Node("signal", "n2", name=name))
    return Node("child", id, (program,), name="sim_async")


def _outlasted(rng: Random) -> Point:
    """A step executes for longer than a rewind waits. A person ends the pause of that rewind, and pauses the run."""
    crowd = (("jump", 1.0), ("jump", 2.0), ("resume", 5.0), ("resume", 5.5), ("pause", rng.choice((7.0, 9.0))))
    step = Node("step", "s1", takes_s=rng.choice((25.0, 45.0)))
    return Point(_main(step, Node("step", "s2")), crowd=crowd, early=True)


def _gives_up_last(rng: Random) -> Point:
    """The commit that gives a child up is the last one of the run, and its process dies after it."""
    quick = Node("step", "s1", takes_s=rng.choice((0.3, 1.0)))
    first = Node("first", "f1", (_waiting_child("c1"), quick))
    before = (Node("step", "s0"),) if rng.random() < 0.5 else ()
    return Point(_main(*before, first), aims=("leaf_cancelled",))


def _left_behind(rng: Random) -> Point:
    """A person goes back while a child lives: another child takes its place."""
    aims = ("branch_created",) if rng.random() < 0.3 else ()
    return Point(_main(_waiting_child("c1"), Node("step", "s1")), aims=aims, crowd=(("jump", 3.0), ("jump", 8.0)))


def _taken_back(rng: Random) -> Point:
    """A run that is cancelled, or fails, is called back, and may be cancelled again."""
    first = rng.choice((Node("book", "b1"), Node("step", "s1")))
    again = ("cancel", 14.0) if rng.random() < 0.5 else ("say", 14.0)
    return Point(_main(first, Node("signal", "w1", name="go")), (("cancel", 2.0), ("jump", 7.0), again), early=True)


def _after_its_child(rng: Random) -> Point:
    """A run begins again after its child ended: the end of that child must reach it a second time."""
    child = Node("child", "c1", (_main(Node("sync", "n1")),), name=rng.choice(("sim_sync", "sim_async")))
    deadly = Node("deadly", "d1", fails=rng.choice((1, 1, 2)), takes_s=rng.choice((0.0, 0.5)))
    return Point(_main(child, deadly), policy="restart", early=True)


def _apart(rng: Random) -> Point:
    """A run of an environment apart, with a child."""
    small = _main(Node("sync", "n1"))
    op, name = rng.choice(("child", "spawn")), rng.choice(("sim_async", "sim_sync"))
    return Point(_main(Node(op, "c1", (small,), name=name), Node("step", "s1")), env=LAB)


def _hopeless(rng: Random) -> Point:
    """Steps that fail for good: one at its first attempt, one at its last."""
    brittle = Node("brittle", "h1")
    other = Node("step", "s1", fails=RETRIES + 1)
    return Point(_main(Node("gather", "g1", (brittle, other)), Node("book", "b1"), Node("brittle", "h2", catch=False)))


def _reserved_in_vain(rng: Random) -> Point:
    """A step that can be undone is given up while it executes, and the run fails: its outcome must be known."""
    reserve = Node("reserve", "r1", takes_s=rng.choice((0.5, 2.0)))
    first = Node("first", "f1", (reserve, Node("sleep", "z1", takes_s=rng.choice((0.1, 0.3)))))
    return Point(_main(first, Node("step", "last", fails=RETRIES + 1, catch=False)))


def _fails_before_its_child(rng: Random) -> Point:
    """A run whose policy is to fail when its process dies, while a child of it waits."""
    deadly = Node("deadly", "d1", fails=1, takes_s=rng.choice((0.1, 0.5)))
    return Point(_main(Node("gather", "g1", (_waiting_child("c1"), deadly))), policy="fail", early=True)


_LATER_CASES: tuple[Callable[[Random], Point], ...] = (_reserved_in_vain, _fails_before_its_child)
_CASES: tuple[Callable[[Random], Point], ...] = (
    _outlasted, _gives_up_last, _left_behind, _taken_back, _after_its_child, _apart, _hopeless
)  # fmt: skip
