"""A planted bug that the engine has outgrown is refused, and each names the rules that must notice it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from buoy.testing.sim.command import find_mutant, noticed
from buoy.testing.sim.kernel import bury_loops
from buoy.testing.sim.mutants import Mutant, StaleMutant
from buoy.testing.sim.plan import restricted
from buoy.testing.sim.planning import make_plan
from buoy.testing.sim.planted import MUTANTS
from buoy.testing.sim.rules import ALL_CHECKS
from buoy.testing.sim.seed import run_seed
from buoy.testing.sim.story import Story
from buoy.testing.sim.timetables import RULE
from buoy.testing.sim.world import World

# Judged at the moment itself, or of the world as a whole.
AT_THE_MOMENT = {
    *("effect before commit", "executed again", "a paused run starts nothing", "executed twice at once"),
    *("acknowledged before it was durable", "what executes is not given back", "wrong answer"),
    *("runs end when all is answered", "what was promised is started", "nobody is buried alive"),
    *("a replay gives the same end", "a suspect is driven alone", "who was declared gone starts nothing", RULE),
    *("what is driven is not given back", "a task has one holder"),
}


class _Engine:
    """Something to patch."""

    def drive(self, run: str, *, at: float) -> str:
        return f"{run} {at}"

    async def wait(self, run: str) -> None: ...

    @property
    def idle(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("drive", lambda engine, run, *, at: "other"),
        ("drive", lambda *args, **kwargs: "any"),
        ("idle", property(lambda engine: False)),
    ],
)
def test_a_patch_that_is_called_as_the_original_is_planted(name: str, value: Any) -> None:
    mutant, real = Mutant(), _Engine.__dict__[name]
    mutant.patch(_Engine, name, value)
    assert _Engine.__dict__[name] is value
    mutant.remove()
    assert _Engine.__dict__[name] is real


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steer", lambda engine: None),
        ("drive", lambda engine, run: "one argument less"),
        ("drive", lambda engine, task, *, at: "another name"),
        ("drive", lambda engine, run, at: "another kind"),
        ("drive", lambda engine, run, **rest: "only some of it"),
        ("wait", lambda engine, run: "not async"),
        ("idle", lambda engine: "no property"),
    ],
)
def test_a_patch_that_does_not_fit_the_original_any_more_is_refused(name: str, value: Callable[..., Any]) -> None:
    before = dict(_Engine.__dict__)
    with pytest.raises(StaleMutant):
        Mutant().patch(_Engine, name, value)
    assert dict(_Engine.__dict__) == before


def test_an_entry_of_a_table_is_patched_in_the_same_way() -> None:
    mutant, table = Mutant(), {"a": len}
    with pytest.raises(StaleMutant):
        mutant.patch_entry(table, "b", len)
    with pytest.raises(StaleMutant):
        mutant.patch_entry(table, "a", lambda one, two: 0)
    mutant.patch_entry(table, "a", lambda obj, /: 0)
    assert table["a"]([1]) == 0
    mutant.remove()
    assert table == {"a": len}


def test_each_mutant_names_rules_that_there_are() -> None:
    known = {*ALL_CHECKS, *AT_THE_MOMENT}
    assert {rule for mutant in MUTANTS.values() for rule in mutant.rules} <= known
    assert [mutant.name for mutant in MUTANTS.values() if not mutant.rules and mutant.test is None] == []


def test_a_violation_of_another_rule_does_not_count_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS["effects-before-commit"]
    found = run_seed(1, "sqlite", mutant.name)
    assert noticed(found) == ["effect before commit"] * len(noticed(found)) != []
    monkeypatch.setattr(mutant, "rules", ("unforeseen error",))
    monkeypatch.setattr(mutant, "enough", 1)
    assert noticed(found) == []
    assert find_mutant(mutant.name, "sqlite") is None


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_each_mutant_fits_the_engine_of_today(name: str) -> None:
    """One that is stale fails here within a moment, and not only where it is hunted."""
    plan = restricted(make_plan(1, "sqlite"), [])
    mutant = MUTANTS[name]()
    world = World(1, plan, mutant, Story())
    try:
        mutant.install(world)
    finally:
        mutant.remove()
        bury_loops(world.kernel)
        world.storage.close()
