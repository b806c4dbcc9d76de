"""A planted bug that the engine has outgrown is refused, and each names the rules that must notice it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from simulator import hunt
from simulator.hunt import find_mutant, noticed
from simulator.kernel import bury_loops
from simulator.mutants import Mutant, StaleMutant
from simulator.near import NEAR, UNFOUND, UNSHOWN
from simulator.plan import restricted
from simulator.planning import make_plan
from simulator.planted import MUTANTS
from simulator.rules import ALL_CHECKS
from simulator.seed import run_seed
from simulator.story import Story
from simulator.timetables import RULE
from simulator.world import World

# Judged at the moment itself, or of the world as a whole.
AT_THE_MOMENT = {
    *("effect before commit", "executed again", "a paused run starts nothing", "executed twice at once"),
    *("acknowledged before it was durable", "what executes is not given back", "wrong answer"),
    *("runs end when all is answered", "what was promised is started", "no living runner is declared dead"),
    *("a replay gives the same end", "a suspect is driven alone", "who was declared gone starts nothing", RULE),
    *("what is driven is not given back", "a task has one holder", "what is undone is what was done"),
    *(
        "who is gone gets no task",
        "documents tell what runs wait for",
        "what rests is due in time",
        "only what was sent is called seen",
    ),
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
    assert find_mutant(mutant.name, "sqlite", 1) is None


def test_each_mutant_has_a_seed_or_a_reason_on_each_store() -> None:
    """What no seed shows on any store is unfound: `make mutants` tells it, and the tests do not ask for it."""
    assert set(NEAR) | set(UNSHOWN) == set(MUTANTS)
    for name, mutant in MUTANTS.items():
        known, unshown = NEAR.get(name, {}), UNSHOWN.get(name, {})
        assert {*known, *unshown} == set(mutant.stores), name
        assert not known.keys() & unshown.keys(), name
        assert all(unshown.values()), name
    assert set(UNFOUND) == set(MUTANTS) - set(NEAR)
    assert len(UNFOUND) * 10 < len(MUTANTS)


def test_the_seed_that_is_known_to_show_a_bug_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[int, bool]] = []

    def run(seed: int, store: str, mutant: str = "none", *, narrow: bool = False) -> Any:
        played.append((seed, narrow))
        return SimpleNamespace(mutant=mutant, violations=[])

    monkeypatch.setattr(hunt, "run_seed", run)
    monkeypatch.setattr(MUTANTS["effects-before-commit"], "enough", 4)
    monkeypatch.setitem(NEAR, "effects-before-commit", {"sqlite": 3})
    assert find_mutant("effects-before-commit", "sqlite") is None
    assert played == [(seed, True) for seed in (3, 1, 2, 4)]
    played.clear()
    assert find_mutant("effects-before-commit", "sqlite", 7) is None
    assert played == [(seed, True) for seed in (7, 8, 9, 10)]


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
