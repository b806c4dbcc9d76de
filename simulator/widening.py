"""Widening: what came to plans later: scopes, sweepers, aimed crashes, schedules, windows, renamed steps, far clocks,
lies of buckets, long windows, pointed windows, rare ends, hard cases.

Invariant: each has a chance of its own, so that none of them changes what a seed is about otherwise.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from buoy.core.schedule.schedule import CatchUp
from simulator.faults import Strike
from simulator.hard_cases import hardened, hardened_later
from simulator.long_windows import stayed
from simulator.plan import CHAOS_S, LAB, STACKS, Blow, Plan, Post, RunPlan, Slot, TimePlan
from simulator.pointed_windows import pointed
from simulator.programs import make_program
from simulator.rare_ends import ended_rarely
from simulator.windows import aimed, windowed
from simulator.workflows import ADOPTED, SAME

# The calls of a store that can be hit. Not those that ask no store (`now`, `wait_for_change`, `close`); nor `suspect`,
# which comes after a silence that is longer than the chaos; nor those that only commands for people make.
_OFTEN = (
    *("commit", "run", "events", "send", "inbox", "find_runs", "claim_tasks", "release", "unread_runs", "mark_read"),
    *("register", "beat", "runners", "declare_dead", "orphans", "schedules"),
)
_SELDOM = (
    *("requeue_orphan", "define", "definition", "import_run", "purge", "tombstone", "half_purged", "rewrite"),
    "save_schedule",
)
# Stores got these later: a chance of their own leaves the crashes of every seed where they were.
_LATER = ("unregistered", "landed")
_LATEST = ("retire",)
STORE_CALLS = (*_OFTEN, *_SELDOM, *_LATER, *_LATEST)
_NTH = (1, 1, 2, 2, 3, 4, 5, 8, 13, 21)
_NTH_SELDOM = (1, 1, 1, 2)
# Many times what a story lasts: a run that waits for a clock does not come to rest.
_APART_S = (3 * 3600.0, 12 * 3600.0)


def widened(plan: Plan, seed: int, *, narrow: bool = False) -> Plan:
    """`narrow`: without what came last. Seeds that were kept before that still tell what they told."""
    for name, change in (
        ("scope", _scoped),
        ("posts", _swept),
        ("policies", _governed),
        ("strikes", _struck),
        ("schedules", _scheduled),
        ("windows", windowed),
        ("aims", aimed),
        ("renames", _renamed),
        ("later strikes", _struck_later),
        ("latest strikes", _struck_last),
        ("far clocks", _apart),
        ("lies", _lied_to),
    ):
        plan = change(plan, Random(f"{name} {seed}"))
    if narrow:
        return plan
    for name, change in (
        ("stays", stayed),
        ("pointed", pointed),
        ("rare ends", ended_rarely),
        # The chances of these leave alone the seeds that were kept before they came.
        ("other programs", hardened),
        ("further cases", hardened_later),
    ):
        plan = change(plan, Random(f"{name} {seed}"))
    return plan


def _scoped(plan: Plan, rng: Random) -> Plan:
    """Two stacks, with processes for each of them, or for both."""
    if rng.random() >= 0.3:
        return plan
    runs = [replace(run, stack=rng.choice((None, *STACKS))) for run in plan.runs]
    slots = [replace(slot, stack=rng.choice((None, *STACKS))) for slot in plan.slots]
    return replace(plan, runs=runs, slots=[*slots, Slot("worker-7", slots[0].queues, stack=rng.choice(STACKS))])


def _swept(plan: Plan, rng: Random) -> Plan:
    """Sweepers of one scope each, and runs that another system wrote, of any scope."""
    if rng.random() >= 0.3:
        return plan
    posts = [
        Post(f"sweeper-{number}", *_scope(rng), adopt=rng.random() < 0.5)
        for number in range(1, rng.randint(2, 3))
    ]  # fmt: skip
    foreign = [_foreign(rng, number) for number in range(1, rng.randint(1, 4))]
    return replace(plan, posts=posts, runs=[*plan.runs, *foreign])


def _foreign(rng: Random, number: int) -> RunPlan:
    stack, env = _scope(rng)
    return RunPlan(
        f"foreign-{number}", rng.uniform(0.5, CHAOS_S / 3), ADOPTED, is_async=True, by_worker=False, twice=False,
        pick=rng.random(), stack=stack, env=env, foreign=True,
    )  # fmt: skip


def _scope(rng: Random) -> tuple[str | None, str | None]:
    return rng.choice((None, *STACKS)), rng.choice((None, None, LAB))


def _governed(plan: Plan, rng: Random) -> Plan:
    """Runs whose policy is not `resume` when their process has died."""
    if rng.random() >= 0.2:
        return plan
    policies = ("resume", "restart", "restart", "fail", "hold")
    runs = [run if run.foreign else replace(run, policy=rng.choice(policies)) for run in plan.runs]
    return replace(plan, runs=runs)


def _struck(plan: Plan, rng: Random) -> Plan:
    """Crashes that are aimed: over many seeds at each call of the store, before it and after it."""
    if rng.random() >= 0.5:
        return plan
    strikes: list[Strike] = []
    for number in range(1, rng.randint(3, 10)):
        call = rng.choice((*_OFTEN, *_SELDOM))
        nth = rng.choice(_NTH_SELDOM if call in _SELDOM else _NTH)
        turn = 1 if call in _SELDOM else rng.choice((1, 1, 2))
        strikes.append(Strike(f"strike-{number}", call, nth, rng.random() < 0.5, turn))
    return replace(plan, strikes=strikes)


def _struck_later(plan: Plan, rng: Random) -> Plan:
    """The same for the calls that stores got later."""
    if rng.random() >= 0.1:
        return plan
    strike = Strike("later-1", rng.choice(_LATER), rng.choice(_NTH_SELDOM), rng.random() < 0.5)
    return replace(plan, strikes=[*plan.strikes, strike])


def _struck_last(plan: Plan, rng: Random) -> Plan:
    """The same for the calls that came after those."""
    if rng.random() >= 0.05:
        return plan
    strike = Strike("latest-1", rng.choice(_LATEST), 1, rng.random() < 0.5)
    return replace(plan, strikes=[*plan.strikes, strike])


def _apart(plan: Plan, rng: Random) -> Plan:
    """Every process is on a machine of its own, and their clocks differ by hours. The store may have a clock."""
    if rng.random() >= 0.15:
        return plan
    plan = replace(plan, single_host=False, apart_s=rng.choice(_APART_S), store_clock=rng.random() < 0.6)
    if plan.store_clock:
        return plan
    # Each machine goes by its own clock: one that is ahead fires the slots of many hours, and what another system
    # wrote is not old enough to be taken in before the clock of the sweeper says so.
    return replace(plan, schedules=[], runs=[run for run in plan.runs if not run.foreign])


def _lied_to(plan: Plan, rng: Random) -> Plan:
    """A bucket whose errors and refusals do not tell whether a write was taken in."""
    if plan.store != "objects" or rng.random() >= 0.3:
        return plan
    return replace(plan, rates=replace(plan.rates, lie=rng.choice((0.01, 0.03, 0.1))))


def _scheduled(plan: Plan, rng: Random) -> Plan:
    if rng.random() >= 0.2:
        return plan
    schedules: list[TimePlan] = []
    for number in range(1, rng.randint(2, 3)):
        is_async = rng.random() < 0.5
        program = make_program(rng, is_async=is_async, size=rng.randint(1, 2), depth=1)
        at, every_s = rng.uniform(0.5, 20.0), rng.choice((13, 25))
        catch_up: CatchUp = rng.choice(("all", "all", "last"))
        schedules.append(TimePlan(f"schedule-{number}", at, every_s, catch_up, program, is_async))
    return replace(plan, schedules=schedules)


def _renamed(plan: Plan, rng: Random) -> Plan:
    """Deploys a release in which a step has another name. A person migrates the runs that do not fit it."""
    if rng.random() >= 0.2:
        return plan
    # A release that does more is no target of a migration: its logs would be bound to code that does not fit.
    blows = [replace(blow, span_s=SAME) if blow.kind == "deploy" else blow for blow in plan.blows]
    # A restart under other names, without a migration, has other keys.
    runs = [replace(run, policy="resume") if run.policy == "restart" else run for run in plan.runs]
    at = rng.uniform(5.0, CHAOS_S / 2)
    return replace(plan, runs=runs, blows=[*blows, Blow("rename-1", at, "rename", 0.0, rng.random(), rng.random())])
