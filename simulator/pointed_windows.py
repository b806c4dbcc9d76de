"""Pointed windows: a program, what people do to it when, and the commit after which its process dies, drawn together.

Programs, acts and crashes that are drawn apart meet like this once in hundreds of seeds: a time that comes due in a
pause while a step executes; a child that is given up by a process that dies before it says so; a spec whose answered
questions are asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from simulator.faults import Strike
from simulator.plan import CHAOS_S, Act, Plan, RunPlan
from simulator.programs import Node

# A person comes about so much too early or too late.
_JITTER_S = 0.5


class Point(msgspec.Struct, frozen=True):
    """`acts`: what one person does, and how long after the start; `crowd`: what several do at the same time.

    `aims`: the events after which the process dies. `early`: it needs most of the time in which things go wrong.
    """

    program: Node
    acts: tuple[tuple[str, float], ...] = ()
    aims: tuple[str, ...] = ()
    crowd: tuple[tuple[str, float], ...] = ()
    policy: str = "resume"
    early: bool = False
    env: str | None = None


def pointed(plan: Plan, rng: Random) -> Plan:
    """One to three of these in most seeds."""
    return plan if rng.random() >= 0.6 else with_points(plan, rng, _POINTS, "point")


def with_points(plan: Plan, rng: Random, kinds: Sequence[Callable[[Random], Point]], prefix: str) -> Plan:
    """The plan with one to three points of these kinds. Their runs are called by that prefix and a number."""
    runs, acts, strikes = list(plan.runs), list(plan.acts), list(plan.strikes)
    for number in range(1, rng.randint(2, 4)):
        point = rng.choice(kinds)(rng)
        name, at = f"{prefix}-{number}", rng.uniform(0.5, 4.0 if point.early else CHAOS_S / 3)
        by_worker, pick = rng.random() < 0.6 and point.env is None, rng.random()
        run = RunPlan(
            name, at, point.program, is_async=True, by_worker=by_worker, twice=False, pick=pick, env=point.env
        )
        # A restart under other names, without a migration, has other keys.
        again = point.policy == "restart" and plan.renames
        runs.append(replace(run, policy="resume" if again else point.policy))
        for place, (kind, after_s) in enumerate(point.acts, 1):
            when = at + after_s + rng.uniform(0.0, _JITTER_S)
            acts.append(Act(f"act-{name}-{place}", when, f"person-of-{name}", kind, name, 0.0, rng.random()))
        for place, (kind, after_s) in enumerate(point.crowd, 1):
            who, when = f"visitor-{place}-of-{name}", at + after_s
            acts.append(Act(f"crowd-{name}-{place}", when, who, kind, name, 0.0, rng.random()))
        strikes += [
            Strike(f"aim-{name}-{place}", f"event {event} of {name}", 1, after=True)
            for place, event in enumerate(point.aims, 1) if rng.random() < 0.8
        ]  # fmt: skip
    return replace(plan, runs=runs, acts=acts, strikes=strikes)


def _main(*kids: Node) -> Node:
    return Node("seq", "main", kids)


def _due_in_a_pause(rng: Random) -> Point:
    """A time comes while the run is paused, and a step of it that executes keeps it in memory."""
    waits = rng.choice(
        (
            Node("sleep", "z1", takes_s=3.0),
            Node("signal_or", "w1", limit_s=3.0, name="to-w1"),
            Node("stubborn", "t1", fails=1),
        )
    )
    both = Node("gather", "g1", (Node("step", "s1", takes_s=8.0), waits))
    return Point(_main(both, Node("step", "s2")), (("pause", 1.0), ("resume", 6.0)))


def _gives_up_and_dies(rng: Random) -> Point:
    """A child that its parent gives up; the process dies before it can ask the child to cancel."""
    child = Node("child", "c1", (_main(Node("sync", "n1"), Node("signal", "n2", name="never")),), name="sim_async")
    quick = rng.choice((Node("step", "s1", takes_s=0.5), Node("sleep", "z1", takes_s=0.5)))
    first = Node("first", "f1", (child, quick))
    return Point(_main(first, Node("signal", "w1", name="late"), Node("step", "s2")), aims=("leaf_cancelled",))


def _gives_up_soon(rng: Random) -> Point:
    """Children that are given up while they are being created."""
    waits = _main(Node("sync", "n1"), Node("signal", "n2", name="never"))
    firsts = tuple(
        Node("first", f"f{number}", (
            Node("child", f"c{number}", (waits,), name="sim_async"),
            Node("sleep", f"z{number}", takes_s=rng.choice((0.02, 0.1, 0.3))),
        ))
        for number in range(1, rng.randint(4, 6))
    )  # fmt: skip
    return Point(_main(*firsts, Node("signal", "w1", name="late"), Node("step", "s2")))


def _spec_begins_again(rng: Random) -> Point:
    """A spec whose questions were answered before its process dies; most begin again."""
    steps = (
        Node("ask", "s1", answer="red"),
        Node("kill", "s2", fails=rng.choice((0, 1)), name="s1"),
        Node("ask", "s3", answer="any text", name="s2"),
        Node("kill", "s4", fails=rng.choice((1, 1, 2)), name="s3"),
    )
    policy = rng.choice(("restart", "restart", "restart", "restart", "resume", "hold", "fail"))
    program = Node("spec", f"graph-{policy}-{rng.randrange(1_000)}", steps, name=policy)
    return Point(program, (("answer", 1.0), ("answer", 4.0), ("answer", 8.0), ("answer", 13.0)), early=True)


def _kills_slowly(rng: Random) -> Point:
    """A step that ends its process again and again, each time after others could have begun or failed beside it."""
    deadly = Node("deadly", "d1", fails=20, takes_s=rng.choice((0.0, 0.1, 1.0, 3.0)))
    beside = rng.choice(((), (Node("stubborn", "t1", fails=2),), (Node("step", "s2", takes_s=0.3, fails=2),)))
    part = Node("gather", "g1", (deadly, *beside)) if beside else deadly
    return Point(_main(Node("step", "s1"), part), policy=rng.choice(("resume", "restart")), early=True)


def _crowded(rng: Random) -> Point:
    """Several people say something to the same run at the same time."""
    waits = tuple(Node("signal", f"w{place}", name="go") for place in range(4))
    kinds = tuple((rng.choice(("burst", "burst", "pause", "resume")), 2.0) for _ in range(rng.randint(3, 5)))
    return Point(_main(Node("sleep", "z1", takes_s=rng.choice((0.5, 4.0))), *waits), crowd=kinds)


_POINTS: tuple[Callable[[Random], Point], ...] = (
    _due_in_a_pause, _gives_up_and_dies, _gives_up_soon, _spec_begins_again, _kills_slowly, _kills_slowly, _crowded
)  # fmt: skip
