"""Seeds as tests: whatever goes wrong, every promise is kept; and planted bugs are found."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest
from simulator.command import STORES, main
from simulator.hunt import find_mutant
from simulator.near import NEAR
from simulator.plan import restricted
from simulator.planning import make_plan
from simulator.planted import MUTANTS, SEEDS_ENOUGH
from simulator.seed import Verdict, run_seed
from simulator.shrink import short_story, shrink

# Any would do; a long run is `make sim SEEDS=100000`.
SEEDS_IN_CI = (4, *range(40, 54), 62, 66)


# Several seeds or planted bugs in one test, on a machine that may be busy with other things.
PATIENT = pytest.mark.timeout(900)


@cache
def _play(store: str, seed: int) -> Verdict:
    """A seed with its story, played once for several tests."""
    return run_seed(seed, store, trace=True)


def _played(store: str) -> list[Verdict]:
    return [_play(store, seed) for seed in SEEDS_IN_CI]


@pytest.mark.parametrize("seed", SEEDS_IN_CI)
@pytest.mark.parametrize("store", STORES)
def test_every_promise_is_kept_by_the_first_seeds(store: str, seed: int) -> None:
    verdict = _play(store, seed)
    assert verdict.violations == [], verdict.command


@PATIENT
@pytest.mark.parametrize("store", STORES)
def test_the_seeds_of_ci_are_worth_playing(store: str) -> None:
    """A simulation in which nothing happens finds nothing."""
    whole = "\n".join("\n".join(verdict.story) for verdict in _played(store))
    for what in ("CRASH before", "CRASH after", "loses its answer", "FREEZES", "is asked to stop", "no answers for"):
        assert what in whole
    for what in ("is deployed", "is spoiled", "the clock of its host is set", "its beats get no answer", "twice"):
        assert what in whole
    for event in ("interaction_response", "signal_received", "timer_fired", "retry_scheduled", "interrupted", "paused"):
        assert event in whole
    for event in ("branch_created", "child_finished", "compensation_completed", "module_completed", "version_bound"):
        assert event in whole
    for event in (".c2 1: workflow_created", ".errand-", ": purged"):
        assert event in whole
    for what in ("sweeps stack", "another system wrote it", "fires every", "schedule-1-", "migrated from"):
        assert what in whole
    assert sum("taken_over" in line for line in whole.splitlines()) > len(SEEDS_IN_CI)


# Seeds, and parts of them, that found a bug of the engine while the simulator was as it is now.
ONCE_BROKEN: list[tuple[str, int, str]] = [
    # An answer that is kept, though its question comes after the step that runs again.
    ("sqlite", 65, "run-5,act-16,act-34,run-5/n2,run-5/n7"),
    # A cancelled run that continues: its old cancellation must not count again, in async code and in sync code.
    ("sqlite", 192, "run-1,act-66,run-1/n1,run-1/n3,run-1/n4,run-1/n5,run-1/n6,run-1/n7"),
    ("objects", 278, "run-1,act-10,run-1/n3,run-1/n4,run-1/n5,run-1/n6,run-1/n8"),
    # A run that restarts after a crash: the end of its child must reach it a second time.
    ("objects", 3062, "run-9,crash-2,stop-2,outage-1,run-9/n1,run-9/n2,run-9/n6,run-9/n8"),
    # An attempt that comes due while the resume is being written: it begins when its own start is durable.
    ("objects", 930168, "run-6,crash-3,crash-5,crash-6,cut-1,act-28,run-6/n4,run-6/n6,run-6/n8,run-6/n9"),
    # Back to one arm, then to the other: the arm that is kept saw the time of then.
    (
        "objects",
        1022630350,
        "run-1,strike-3,strike-4,strike-5,strike-7,strike-8,crash-3,crash-4,freeze-3,outage-1,outage-2,act-73,act-77,"
        "run-1/n6,run-1/n1,run-1/n2,run-1/n3,run-1/n4",
    ),
    # A pause in one commit, a resume in the next: the effects of the first must not start a body.
    (
        "objects",
        1022630806,
        "run-1,run-2,worker-2,freeze-3,freeze-4,stop-1,stop-2,outage-1,outage-2,act-2,act-8,act-11,act-13,act-26,act-34,"
        "act-45,act-50,act-51,act-71,act-79,run-1/n1,run-1/n2,run-2/n1,worker-1:24a,starter-run-1:3a,worker-1:86a,"
        "worker-1:121a,worker-2.2:2,worker-1:152a,worker-1:159a,worker-1:167a,worker-1:174,worker-1:214a,worker-1:242a,"
        "worker-2.2:81a,worker-2.2:231a",
    ),
    # A run that was given back since the list of what is held was read: it is not taken again, whatever its queue.
    (
        "sqlite",
        3141592657,
        "run-1,run-2,run-4,run-5,run-7,worker-2,worker-7,schedule-1,outage-2,act-5,run-1/n1,run-1/n2,run-2/n4,run-4/n1,"
        "run-4/n2,run-4/n3,run-4/n4,run-4/n7,run-4/n10,run-4/n8,run-4/last,run-5/n1,run-5/n5,run-7/n1,run-7/n2,"
        "worker-7:7,worker-1:10,worker-2:19a,worker-7.2:6a,worker-7.3:5a,worker-2:63a,worker-2:83a,worker-1.2:99,"
        "worker-7.4:8",
    ),
    # A slow runner whose task went to another one, which executes the run by now.
    (
        "objects",
        1022632036,
        "run-3,run-4,worker-2,worker-3,worker-7,sweeper-1,strike-2,freeze-1,deploy-1,damage-4,run-3/n1,run-4/n2,"
        "run-4/n3,run-4/n4,run-4/n6,worker-3:22a,worker-3:26a,worker-7:33a,worker-2:63a,worker-7:63a,worker-2.2:1a,"
        "worker-3:138a,worker-3:140a,worker-3:150a,worker-3:155a,worker-7:165",
    ),
    # A runner that only started a run, and gave it back; the document is lost and made again, with it as the holder.
    ("objects", 2015968982, "run-4,worker-4,damage-2,run-4/n1"),
    # A run that must be alone is taken in its back-off, which ends at once: the next such run waits.
    ("sqlite", 4202630387, ""),
    # A parent asks for a child that is just being taken: the second execution must not call its messages seen.
    ("objects", 6448829464, ""),
    # Two of eleven deaths were found without the evidence of how: they are not charged to the run.
    ("objects", 1618034410, ""),
]


def test_a_run_is_not_given_back_before_all_its_effects_are_done() -> None:
    """A step that ended at once let the run rest, and the cancellation of a child that it had given up was dropped."""
    assert run_seed(942099, "sqlite").violations == []


@pytest.mark.parametrize(("store", "seed", "only"), ONCE_BROKEN)
def test_stories_that_once_broke_a_promise_keep_it_now(store: str, seed: int, only: str) -> None:
    verdict = run_seed(seed, store, only=only.split(",") if only else None, narrow=True)
    assert verdict.violations == [], verdict.command


# The same with the whole of a plan, long windows and clocks of their own.
ONCE_BROKEN_WIDE: list[tuple[str, int, str]] = [
    # Timers of a run that has to be alone, whose time the task carries: it was claimed and given back for ever.
    ("sqlite", 4127003231, ""),
    # A message wakes a run whose owner died, before it is claimed; a runner stops that took such a run.
    ("objects", 9200000002, ""),
    ("objects", 9200000014, ""),
    # A sweep takes note of a death, and the next worker dies of another run before it claims this one.
    ("sqlite", 7300101267, ""),
    # A run that ended again, with an entry of its first activity that could not be deleted, among many that ended.
    ("objects", 835383398, ""),
    # A step of a spec that is called with nothing: those who judge must not fail themselves.
    ("sqlite", 871277842, ""),
    # A document made again from the log names its runner as holder, and that runner drives another run alone.
    ("objects", 8605990022, ""),
    # A pause is durable after a compensation was recorded as begun, and before its body starts.
    ("sqlite", 7300219, ""),
    ("sqlite", 7301177, ""),
    # A step that a pause took back before it began, in a run that another owner had for a message only.
    ("objects", 942380, ""),
    # The owner of a run that is held for a way back dies, and a sweep gives the run to the next worker.
    ("objects", 5241255740, ""),
    # The clock of the only host is set back while the owner of such a run is frozen.
    ("sqlite", 5241255785, ""),
    # A frozen writer continues when its run was taken over, ended and was purged, and its place in the log is free.
    ("objects", 5241256310, ""),
    # The same, and an answer about the run reaches the process when it continues.
    ("objects", 5241258800, ""),
    # A person brings a run back while another one purges it.
    ("objects", 5241257894, ""),
    # An entry of a list arrives after the purge of its run.
    ("objects", 5241256980, ""),
    # A step that ends at once lets the code give up another one, whose body is about to start.
    ("sqlite", 5241296253, ""),
    # A process that was declared gone executes a step that a person has called back since, under its old key.
    ("objects", 5241257234, ""),
    ("sqlite", 5241296117, ""),
    # A person pauses a run whose process died before it told a child that it was given up.
    ("sqlite", 5241297149, ""),
    # A claim whose runner was declared gone, and no answer to the question whether it lives.
    ("objects", 5241415292, ""),
]


@pytest.mark.parametrize(("store", "seed", "only"), ONCE_BROKEN_WIDE)
def test_wide_stories_that_once_broke_a_promise_keep_it_now(store: str, seed: int, only: str) -> None:
    verdict = run_seed(seed, store, only=only.split(",") if only else None)
    assert verdict.violations == [], verdict.command


# Each on one store on which a seed is known to show it, the stores in turn.
PLANTED = [(mutant, sorted(NEAR[mutant])[place % len(NEAR[mutant])]) for place, mutant in enumerate(sorted(NEAR))]


@PATIENT
@pytest.mark.parametrize(("mutant", "store"), PLANTED)
def test_each_planted_bug_is_found(mutant: str, store: str) -> None:
    found = find_mutant(mutant, store)
    assert found is not None, f"{mutant} was not found in {SEEDS_ENOUGH[mutant]} seeds"
    assert found.story
    assert f"--seed {found.seed} --store {store}" in found.command
    assert f"--mutant {mutant}" in found.command


def test_there_are_many_planted_bugs() -> None:
    assert len(MUTANTS) >= 15
    assert all(mutant.__doc__ and mutant.enough > 0 for mutant in MUTANTS.values())


@PATIENT
@pytest.mark.parametrize("store", STORES)
def test_a_seed_tells_the_same_story_again(store: str) -> None:
    for verdict in reversed([_play(store, seed) for seed in SEEDS_IN_CI[:3]]):
        again = run_seed(verdict.seed, store, trace=True)
        assert (again.story, again.turns) == (verdict.story, verdict.turns)


def _about(seed: int) -> set[str]:
    """What came to plans later, and is in this one."""
    plan = make_plan(seed, "sqlite")
    found = {"posts": plan.posts, "schedules": plan.schedules, "strikes": plan.strikes, "renames": plan.renames}
    found["stacks"] = [slot for slot in plan.slots if slot.stack is not None]
    found["policies"] = [run for run in plan.runs if run.policy != "resume"]
    found["foreign"] = [run for run in plan.runs if run.foreign]
    found["windows"] = [run for run in plan.runs if run.name.startswith("window-")]
    found["cases"] = [run for run in plan.runs if run.name.startswith("case-")]
    found["aims"] = [strike for strike in plan.strikes if strike.call.startswith("event ")]
    return {name for name, some in found.items() if some}


def test_seeds_are_about_everything_that_came_later_also_at_once() -> None:
    everything = {
        *("posts", "schedules", "strikes", "renames", "stacks"),
        *("policies", "foreign", "windows", "cases", "aims"),
    }
    assert set().union(*map(_about, SEEDS_IN_CI)) == everything
    assert max(len(_about(seed)) for seed in range(300)) >= 5


@pytest.mark.parametrize("seed", ["7", "57"])
@pytest.mark.parametrize("store", STORES)
def test_a_seed_tells_the_same_story_in_another_process(store: str, seed: str) -> None:
    """Nothing may depend on addresses or on the order of sets."""
    command = [sys.executable, "-m", "simulator", "--seed", seed, "--store", store, "--trace"]
    told = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": hashing}, capture_output=True, check=False).stdout
        for hashing in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 20


@pytest.mark.parametrize("store", STORES)
def test_a_story_with_all_its_parts_is_the_whole_story(store: str) -> None:
    whole = _play(store, SEEDS_IN_CI[4])
    again = run_seed(whole.seed, store, trace=True, only=whole.parts)
    assert again.story == whole.story


def test_a_plan_without_something_is_the_same_plan_otherwise() -> None:
    plan = make_plan(3, "sqlite")
    names = plan.names()
    assert restricted(plan, names).names() == names
    for gone in (plan.runs[0].name, plan.acts[3].name, plan.blows[0].name):
        left = restricted(plan, [name for name in names if name != gone])
        assert gone not in left.names()
        assert len(left.names()) < len(names)
    assert restricted(plan, []).slots == plan.slots[:1]


@PATIENT
def test_a_story_shrinks_to_what_matters() -> None:
    found = find_mutant("skip-compensation", "sqlite")
    assert found is not None
    short = shrink(found)
    assert short.violations[0].rule == found.violations[0].rule
    assert len(short.parts) * 10 < len(found.parts)
    assert short.only is not None
    told = short_story(short)
    assert len(told) < 40
    assert any("step_failed, workflow_failed" in line for line in told)
    again = run_seed(found.seed, "sqlite", "skip-compensation", only=short.only, trace=True)
    assert again.story == short.story


@PATIENT
def test_a_broken_promise_is_told_with_the_command_that_shows_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--store", "sqlite", "--mutant", "effects-before-commit"]) == 1
    out = capsys.readouterr().out
    assert "effect before commit:" in out
    assert " --only " in out
    again = next(line for line in out.splitlines() if line.startswith("again: python -m simulator "))
    assert main(again.split()[4:]) == 1
    assert "effect before commit:" in capsys.readouterr().out


def test_seeds_that_keep_every_promise_exit_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--start", "5"]) == 0
    out = capsys.readouterr().out
    assert "every promise was kept" in out
    assert "x lost answer" in out


def test_totals_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--start", "5", "--json"]) == 0
    assert '"broken":0' in capsys.readouterr().out
