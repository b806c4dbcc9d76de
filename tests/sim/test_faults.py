"""Faults are counted when they happened, and aimed crashes hit what they are aimed at."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import pytest
from simulator.command import STORES
from simulator.faults import Faults, Rates, Strike
from simulator.plan import restricted
from simulator.planning import make_plan
from simulator.seed import run_seed
from simulator.totals import Totals
from simulator.widening import STORE_CALLS
from simulator.windows import EVENTS

from buoy.ports.maintenance import Archive, ScheduleStore
from buoy.ports.store import Store

# They call no store, or come after a silence that is longer than the chaos.
UNREACHED = {"now", "wait_for_change", "close", "suspect", "reopen"}
# Only commands for people make them: they complete an id, list what cannot be read, and remove it.
FOR_PEOPLE = {
    "run_ids",
    "counts",
    "moved",
    "broken",
    "discard_broken",
    "remains",
    "purge_broken",
    "tombstones",
    "add_tombstone",
}
NEVER_HIT = UNREACHED | FOR_PEOPLE


def test_every_call_of_a_store_can_be_hit() -> None:
    ports = (Store, Archive, ScheduleStore)
    calls = {name for port in ports for name, _ in inspect.getmembers(port, inspect.iscoroutinefunction)}
    assert set(STORE_CALLS) == calls - NEVER_HIT
    assert len(STORE_CALLS) == len(set(STORE_CALLS))


def test_over_many_seeds_every_call_is_aimed_at_before_and_after() -> None:
    strikes = [strike for seed in range(1_500) for strike in make_plan(seed, "sqlite").strikes]
    # Some wait for an event of one run.
    aimed = {(strike.call.partition(" of ")[0], strike.after) for strike in strikes}
    calls = (*STORE_CALLS, *(f"event {kind}" for kind in EVENTS))
    assert aimed == {(call, after) for call in calls for after in (False, True)}


def test_a_strike_hits_once_and_waits_for_its_turn() -> None:
    faults = Faults("seed", Rates(), None, [Strike("strike-1", "commit", 3, after=True, turn=2)])
    assert not faults.aimed("commit", 2, after=True)
    assert not faults.aimed("commit", 3, after=False)
    assert not faults.aimed("send", 3, after=True)
    assert [faults.aimed("commit", 3, after=True) for _ in range(4)] == [False, True, False, False]


@pytest.mark.parametrize("store", STORES)
def test_crashes_are_counted_as_they_happened(store: str) -> None:
    """By the call of the store that they happened in; and as many as the story tells."""
    told: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for seed in range(60, 66):
        verdict = run_seed(seed, store, trace=True)
        for line in verdict.story:
            found = re.search(r" CRASH (before|after|by|in) ", line)
            if found is not None:
                told[found[1]] += 1
        for kind, number in verdict.faults.items():
            if kind == "crash":
                counted["by"] += number
            elif kind == "crash in a body":
                counted["in"] += number
            elif kind.startswith("crash "):
                when, call = kind.removeprefix("crash ").split()
                assert call in STORE_CALLS
                counted[when] += number
    assert counted == told
    assert min(counted.values()) > 0


def test_an_aimed_crash_is_part_of_the_story_and_can_be_left_out() -> None:
    seed = next(seed for seed in range(100) if make_plan(seed, "sqlite").strikes)
    plan = make_plan(seed, "sqlite")
    names = [strike.name for strike in plan.strikes]
    assert set(names) <= set(plan.names())
    left = restricted(plan, [name for name in plan.names() if name != names[0]])
    assert [strike.name for strike in left.strikes] == names[1:]


def test_a_crash_that_is_aimed_happens_where_it_is_aimed() -> None:
    """A world in which nothing else goes wrong."""
    hit = 0
    for seed in range(1, 40):
        plan = make_plan(seed, "sqlite")
        aimed = {f"crash {'after' if each.after else 'before'} {_call(each)}" for each in plan.strikes}
        if not aimed:
            continue
        # Programs of points may end their own process.
        only = [name for name in plan.names() if not name.startswith(("act-", "post-", "window-", "point-"))]
        only = [name for name in only if not any(name == blow.name for blow in plan.blows)]
        verdict = run_seed(seed, "sqlite", only=only)
        assert verdict.violations == []
        assert {kind for kind in verdict.faults if kind.startswith("crash")} <= aimed
        hit += sum(verdict.faults.values())
        if hit > 5:
            return
    pytest.fail("no aimed crash happened")


def _call(strike: Strike) -> str:
    """The call of the store in which it strikes."""
    return "commit" if strike.call.startswith("event ") else strike.call


def test_totals_tell_crashes_by_call_and_those_that_never_happened() -> None:
    faults = {"crash": 3, "crash before commit": 2, "crash after commit": 1, "lost answer": 7}
    told = Totals(faults=faults).in_words(1, ("sqlite",))
    assert "faults: 7 x lost answer, 3 x crash\n" in told
    assert "crashes before/after each call of the store: commit 2/1, " in told
    assert "purge 0/0" in told
