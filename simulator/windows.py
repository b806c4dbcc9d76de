"""Windows: small programs for what random ones hardly reach, and crashes that are aimed at single events.

Parallel effects that complete out of order before a failure; several signals of one name before the run waits for one;
a child that is promised in the last commit of its parent; parents that fail or give up while their children live; steps
that end their process; waits that are longer than most crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from buoy.core.log import events as e
from simulator.faults import Strike
from simulator.plan import CHAOS_S, Act, Plan, RunPlan
from simulator.programs import RETRIES, Node

# What a crash can be aimed at, before or after the commit that has it.
EVENTS = tuple(e.event_name(body) for body in e.BODIES)
# Those that the narrowest windows are about.
_OFTEN = (
    *("child_started", "child_finished", "leaf_cancelled", "workflow_failed", "workflow_cancelled"),
    *("workflow_completed", "compensation_started", "compensation_completed", "retry_scheduled", "timer_started"),
    *("signal_received", "interaction_response", "branch_created", "cancel_requested", "paused", "resumed"),
)
_NTH = (1, 1, 2, 3, 5)

Made = tuple[Node, tuple[str, ...]]


def windowed(plan: Plan, rng: Random) -> Plan:
    """Some of these programs, and what people do to each."""
    if rng.random() >= 0.6:
        return plan
    runs, acts = list(plan.runs), list(plan.acts)
    for number in range(1, rng.randint(2, 4)):
        is_async = rng.random() < 0.8
        program, kinds = rng.choice(_ASYNC if is_async else _SYNC)(rng)
        name, at = f"window-{number}", rng.uniform(0.5, CHAOS_S / 3)
        by_worker, pick = rng.random() < 0.6, rng.random()
        runs.append(RunPlan(name, at, program, is_async=is_async, by_worker=by_worker, twice=False, pick=pick))
        acts += acts_on(rng, name, at, kinds)
    return replace(plan, runs=runs, acts=acts)


def acts_on(rng: Random, run: str, at: float, kinds: tuple[str, ...]) -> list[Act]:
    """Some of these acts, one after the other, by one person who does nothing else."""
    found: list[Act] = []
    for number, kind in enumerate((each for each in kinds if rng.random() < 0.7), 1):
        at += rng.expovariate(0.3)
        found.append(Act(f"act-{run}-{number}", at, f"person-of-{run}", kind, run, rng.random(), rng.random()))
    return found


def aimed(plan: Plan, rng: Random) -> Plan:
    """Crashes before or after the commit of some event."""
    if rng.random() >= 0.5:
        return plan
    strikes = list(plan.strikes)
    for number in range(1, rng.randint(2, 6)):
        kind = rng.choice(_OFTEN if rng.random() < 0.7 else EVENTS)
        nth, turn = rng.choice(_NTH), rng.choice((1, 1, 2))
        strikes.append(Strike(f"aim-{number}", f"event {kind}", nth, rng.random() < 0.7, turn))
    return replace(plan, strikes=strikes)


# ---- programs, each with what people may do during them

_BACK = ("jump", "retry", "jump", "retry")


def _fails(name: str = "last", takes_s: float = 0.0) -> Node:
    return Node("step", name, takes_s=takes_s, fails=RETRIES + 1, catch=False)


def _main(*kids: Node) -> Node:
    return Node("seq", "main", kids)


def _reserves(rng: Random, number: int) -> tuple[Node, ...]:
    """Effects that can be undone, and end in any order."""
    return tuple(Node("reserve", f"r{place}", takes_s=rng.choice((0.0, 0.2, 1.0, 3.0))) for place in range(number))


def _saga(rng: Random) -> Made:
    both = Node("gather", "g1", _reserves(rng, rng.randint(2, 4)))
    rest = rng.choice(
        ((), (Node("ask", "a1", answer="red"),), (Node("book", "b1"),), (Node("sleep", "z1", takes_s=3.0),))
    )
    end = (_fails(),) if rng.random() < 0.8 else ()
    return _main(both, *rest, *end), ("cancel",) if not end else _BACK


def _sync_saga(rng: Random) -> Made:
    pack = Node("pack", "p1", _reserves(rng, rng.randint(2, 3)))
    return _main(pack, _fails()), _BACK


def _buffered(rng: Random) -> Made:
    """Signals that come before anybody waits for them."""
    waits = tuple(Node("signal", f"w{place}", name="go") for place in range(rng.randint(2, 4)))
    first = Node("sleep", "z1", takes_s=rng.choice((0.5, 6.0)), name="buoy")
    return _main(first, *waits), ("burst", "burst", "pause", "resume", "burst")


def _buffered_at_once(rng: Random) -> Made:
    """The same, and several wait at the same time."""
    program, kinds = _buffered(rng)
    first, *waits = program.kids
    return _main(first, Node("gather", "g1", tuple(waits))), kinds


def _parting(rng: Random) -> Made:
    """A child that is started in the last commit of its parent."""
    child = Node("spawn", "c1", (_small(rng),), name=rng.choice(("sim_async", "sim_sync")))
    first = (Node("step", "s1"),) if rng.random() < 0.5 else ()
    return _main(*first, child), ()


def _small(rng: Random) -> Node:
    kinds = (Node("signal", "n1", name="never"), Node("ask", "n1", answer="red"), Node("sync", "n1"))
    return _main(rng.choice(kinds), Node("sync", "n2"))


def _patient(rng: Random) -> Node:
    """A program that lasts until a message comes; some have a child that does."""
    waits = _main(Node("sync", "n1"), Node("signal", "n2", name="never"))
    return waits if rng.random() < 0.6 else _main(Node("child", "n1", (waits,), name="sim_async", catch=False))


def _bereaved(rng: Random) -> Made:
    """A parent that fails, or is cancelled, while its child lives."""
    child = Node("child", "c1", (_patient(rng),), name=rng.choice(("sim_async", "sim_async", "sim_sync")), catch=False)
    if "child" in {kid.op for kid in child.kids[0].kids}:
        child = replace(child, name="sim_async")
    if rng.random() < 0.7:
        return _main(Node("gather", "g1", (child, _fails("f1", rng.choice((0.0, 0.5, 3.0)))))), ("retry", "jump")
    return _main(child), ("cancel", "jump", "say")


def _given_up(rng: Random) -> Made:
    """A child that its parent's code gives up, and then continues."""
    child = Node("child", "c1", (_patient(rng),), name="sim_async")
    quick = Node("step", "s1", takes_s=rng.choice((0.0, 0.5, 3.0)))
    rest = rng.choice((Node("sleep", "z1", takes_s=12.0), Node("signal", "w1", name="late")))
    return _main(Node("first", "f1", (child, quick)), rest, Node("step", "s2")), ("jump",)


def _deadly(rng: Random) -> Made:
    """A step that ends its process, seldom or again and again."""
    kills = rng.choice((1, 2, 4, 6, 14, 20))
    deadly = Node("deadly", "d1", fails=kills)
    beside = (Node("step", "s2", takes_s=rng.choice((0.5, 8.0))),) if rng.random() < 0.5 else ()
    part = Node("gather", "g1", (deadly, *beside)) if beside else deadly
    return _main(Node("step", "s1"), part, Node("step", "s3")), ()


def _mined(rng: Random) -> Made:
    """Code that ends the process that runs it, before it does anything."""
    return _main(Node("mine", "m1", fails=rng.choice((1, 3, 20, 20))), Node("step", "s1")), ()


def _long(rng: Random) -> Made:
    """A wait during which its process dies, and which must not begin again."""
    takes_s = rng.choice((25.0, 40.0))
    waits = Node("sleep", "z1", takes_s=takes_s, name=rng.choice(("buoy", "")))
    other = Node("signal_or", "w1", limit_s=takes_s, name="to-w1")
    return _main(rng.choice((waits, other)), Node("step", "s1")), ("pause", "resume") if rng.random() < 0.3 else ()


def _called_back(rng: Random) -> Made:
    """Steps, a child and a question that people go back to."""
    kinds = (Node("child", "c1", (_main(Node("sync", "n1")),), name="sim_sync"), Node("ask", "a1", answer="red"))
    parts = [Node("step", "s1"), rng.choice(kinds), Node("book", "b1"), Node("step", "s2")]
    both = Node("gather", "g1", (Node("step", "s3", takes_s=0.5), Node("seq", "q1", tuple(parts))))
    end = (_fails(),) if rng.random() < 0.4 else ()
    return _main(both, Node("signal", "w1", name="go"), *end), ("answer", *_BACK, "answer", "say")


def _given_back(rng: Random) -> Made:
    """The same for code that waits in a thread."""
    child = Node("child", "c1", (_main(Node("sync", "n1")),), name="sim_sync")
    return _main(Node("sync", "s1"), child, Node("book", "b1"), Node("signal", "w1", name="go")), (*_BACK, "say")


_ASYNC: tuple[Callable[[Random], Made], ...] = (
    *(_saga, _saga, _buffered, _buffered_at_once, _parting, _bereaved, _bereaved, _given_up, _deadly, _deadly, _mined),
    *(_long, _long, _called_back, _called_back),
)
_SYNC: tuple[Callable[[Random], Made], ...] = (_sync_saga, _buffered, _parting, _long, _given_back)
