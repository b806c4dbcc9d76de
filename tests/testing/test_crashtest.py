"""The crash test finds what is wrong with workflows, in the right words, and nothing where nothing is."""

from __future__ import annotations

import gc
import os
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import buoy
from buoy.operations.targets.workflow_files import find_workflow
from buoy.stores.postgres.address import address_of
from buoy.testing import Options, Report, crash_test, local_host
from buoy.testing.crashtest.judge import Judge
from buoy.testing.crashtest.notes import Note
from buoy.testing.crashtest.scenario import Played
from tests.postgres_server import fresh_url, query

from . import flows


def crashed(
    workflow: buoy.Workflow[..., Any], *, answers: Any = None, given: bytes = b"{}", fresh: bool = False, **options: Any
) -> Report:
    """Without fresh interpreters, which take a second, unless they are what is tested."""
    return crash_test(workflow, msgspec.Raw(given), answers, Options(fresh=fresh, **options))


def kinds(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings}


def only(report: Report, kind: str) -> str:
    (finding,) = [each for each in report.findings if each.kind == kind]
    assert finding.advice
    assert finding.points
    return finding.what


LAMP = b'{"item": "lamp"}'


# ---- right ones


@pytest.mark.parametrize("store", ["memory", "sqlite", "folder"])
def test_a_right_workflow_has_no_findings_on_any_store(store: str) -> None:
    limit = None if store == "memory" else 4
    report = crashed(flows.checkout, answers=flows.ANSWERS, given=LAMP, store=store, max_crashes=limit)
    assert kinds(report) == set()
    assert report.reference.status == "completed"
    assert report.reference.result["packed"] == 7
    assert report.virtual_s > 2 * 86400
    assert report.recovery_ms() is not None


def test_every_write_is_crashed_before_and_after_and_twice() -> None:
    report = crashed(flows.checkout, answers=flows.ANSWERS, given=LAMP)
    seen = {(crash.number, crash.phase) for crash in report.crashes if crash.phase != "undo"}
    phases = ("before", "after", "twice", "cancel")
    assert seen == {(number, phase) for number in range(1, report.writes + 1) for phase in phases}
    assert report.writes > 10
    assert report.left_out == 0


@pytest.mark.parametrize(
    ("workflow", "given", "status"),
    [
        (flows.sync_checkout, LAMP, "completed"),
        (flows.broken_payment, LAMP, "failed"),
        (flows.loop, b"{}", "completed"),
        (flows.cleans_up, b"{}", "completed"),
        (flows.fails_on_crash, b"{}", "completed"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_right_workflows_have_no_findings(workflow: Any, given: bytes, status: str) -> None:
    report = crashed(workflow, answers=flows.ANSWERS, given=given)
    assert report.findings == (), str(report)
    assert report.reference.status == status


def test_steps_that_look_at_their_key_are_told_but_are_no_finding() -> None:
    report = crashed(flows.sync_checkout, answers=flows.ANSWERS, given=LAMP)
    assert {repeat.step for repeat in report.repeats} == {"label", "reserve"}
    assert all(repeat.looks_at_key and repeat.executions == 2 for repeat in report.repeats)


def test_the_same_seed_gives_the_same_report() -> None:
    def shape(report: Report) -> Any:
        return [(crash.number, crash.phase, crash.what, crash.ok) for crash in report.crashes]

    first, second = (crashed(flows.by_chance, seed=5) for _ in range(2))
    assert shape(first) == shape(second)
    assert [finding.what for finding in first.findings] == [finding.what for finding in second.findings]


def test_pythons_own_chance_is_left_as_it_was() -> None:
    random.seed(11)
    expected = [random.random() for _ in range(2)]
    random.seed(11)
    first = random.random()
    crashed(flows.by_chance)
    assert [first, random.random()] == expected


def test_fewer_crashes_are_chosen_by_the_seed_and_the_rest_is_counted() -> None:
    report = crashed(flows.checkout, answers=flows.ANSWERS, given=LAMP, max_crashes=5, seed=3)
    assert sum(crash.phase in ("before", "after") for crash in report.crashes) == 5
    assert report.left_out == 2 * report.writes - 5


def test_the_summary_says_what_it_counts() -> None:
    report = crashed(flows.loop, max_crashes=4, cancels=False)
    writes = len({crash.number for crash in report.crashes})
    runs, crashes = 4 + writes, 4 + 2 * writes
    words = f"4 of {2 * report.writes} points before and after them, crashed {crashes} times in {runs} runs, "
    assert words in report.summary()


# ---- wrong ones


def test_a_double_charge_is_found_with_the_key_that_it_ignored() -> None:
    flows.CHARGES.clear()
    report = crashed(flows.double_charge)
    what = only(report, "repeated")
    assert "Step charge ran 2 times under one idempotency key (crashtest/charge#1/0)" in what
    assert "never looked at that key" in what
    (finding,) = report.findings
    assert "buoy.idempotency_key()" in finding.advice
    assert finding.points == ("before write 2 (step_completed charge#1, workflow_completed)",)
    assert [crash.ok for crash in report.crashes if crash.phase == "before"] == [True, False]
    assert len(flows.CHARGES) > len(report.crashes), "the step was really executed, and once more at one point"


@pytest.mark.parametrize("pattern", ["charge", "ch*"])
def test_a_step_that_may_be_repeated_is_no_finding(pattern: str) -> None:
    assert crashed(flows.double_charge, repeatable=[pattern]).ok
    assert not crashed(flows.double_charge, repeatable=["other"]).ok


def test_a_stubbed_step_is_not_executed() -> None:
    flows.CHARGES.clear()
    report = crashed(flows.double_charge, stubs={"charge": "canned"})
    assert report.ok
    assert report.reference.result == "canned"
    assert flows.CHARGES == []


def test_a_look_at_the_clock_is_found_with_its_place_even_if_it_changed_nothing() -> None:
    report = crashed(flows.by_the_clock)
    assert kinds(report) == {"clock"}
    what = only(report, "clock")
    assert "calls datetime.now" in what
    assert "flows.py:" in what
    assert "buoy.now()" in report.findings[0].advice


def test_a_branch_by_the_clock_is_found_with_the_first_difference() -> None:
    report = crashed(flows.by_the_stopwatch)
    assert {"clock", "nondeterminism"} <= kinds(report)
    assert "First difference: reserve#2 was called with" in only(report, "nondeterminism")
    assert "the code now calls it with" in only(report, "nondeterminism")


def test_a_branch_by_chance_is_found_with_the_first_difference() -> None:
    report = crashed(flows.by_chance)
    assert kinds(report) == {"random", "nondeterminism"}
    assert "random.random" in only(report, "random")
    assert "but the code asked for" in only(report, "nondeterminism")


def test_a_uuid_is_chance_too() -> None:
    report = crashed(flows.by_uuid)
    assert {"random", "nondeterminism"} <= kinds(report)
    assert "flows.py:" in only(report, "random")


def test_sync_code_that_does_not_repeat_itself_is_found_without_any_crash() -> None:
    report = crashed(flows.sync_by_chance)
    assert {"random", "nondeterminism"} <= kinds(report)
    assert report.reference.status == "paused"


def test_what_is_allowed_is_no_finding() -> None:
    assert crashed(flows.by_the_clock, allow=["clock"]).ok


@pytest.mark.parametrize(
    ("workflow", "words"),
    [
        (flows.swallows, "The run was asked to cancel; its code caught that, started reserve#1, and completed"),
        (flows.swallows_all, "The code caught GeneratorExit"),
        (flows.sync_swallows, "The code caught buoy.Suspended"),
    ],
    ids=["CancelledError", "BaseException", "Suspended"],
)
def test_swallowed_cancellation_is_found(workflow: Any, words: str) -> None:
    report = crashed(workflow)
    assert kinds(report) == {"swallowed"}
    assert any(words in finding.what for finding in report.findings), str(report)
    assert "raise it again" in report.findings[0].advice


@pytest.mark.filterwarnings("ignore:the call of step:RuntimeWarning")
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_calls_that_are_never_awaited_are_found_with_their_place(real: bool) -> None:
    report = crashed(flows.forgets_to_await, cancels=False, real=real, max_crashes=1)
    assert kinds(report) == {"not_awaited"}, str(report)
    step, timer = (finding.what for finding in report.findings)
    assert "flows.py:" in step and "calls reserve#1, and nothing ever waits for it" in step
    assert "calls timer#1," in timer
    assert "write `await` before the call" in report.findings[0].advice


@pytest.mark.filterwarnings("ignore:the call of step:RuntimeWarning")
def test_calls_of_sync_code_that_nothing_asks_for_are_found() -> None:
    report = crashed(flows.sync_forgets, cancels=False)
    assert kinds(report) == {"not_awaited"}, str(report)
    assert "calls label#1, and nothing ever waits for it" in only(report, "not_awaited")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python itself tells of it there, and it is refused")
@pytest.mark.parametrize(("workflow", "holds"), [(flows.blocks, "process"), (flows.sync_blocks, "thread")])
def test_a_call_that_blocks_is_found_with_its_place_and_its_time(workflow: Any, holds: str) -> None:
    report = crashed(workflow, cancels=False, max_crashes=1)
    assert kinds(report) == {"blocking"}, str(report)
    what = only(report, "blocking")
    found = re.search(rf"flows.py:\d+ calls time.sleep, which held its {holds} for ([\d.]+) s", what)
    assert found is not None, what
    assert float(found[1]) >= flows.BLOCKED_S * (2 if holds == "process" else 1)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="Python does not tell of it there")
def test_a_call_that_blocks_is_refused() -> None:
    report = crashed(flows.blocks)
    assert kinds(report) == {"not_allowed"}
    assert "time.sleep" in only(report, "not_allowed")


def test_a_crash_in_a_compensation_that_a_cancel_started_is_tried_and_judged() -> None:
    report = crashed(flows.refunds_twice)
    (finding,) = report.findings
    assert (finding.kind, finding.step) == ("repeated", "careless_refund")
    assert all(point.endswith("and a crash in the first compensation") for point in finding.points)
    undone = [crash for crash in report.crashes if crash.phase == "undo"]
    assert undone and all(crash.ended == "ended" and crash.recovery_ms is not None for crash in undone)
    assert {crash.phase for crash in crashed(flows.checkout, answers=flows.ANSWERS, given=LAMP).crashes} >= {"undo"}


def test_without_cancels_nobody_is_cancelled() -> None:
    report = crashed(flows.swallows, cancels=False)
    assert report.ok
    assert not any(crash.phase == "cancel" for crash in report.crashes)


def test_a_result_that_is_not_json_is_found_once() -> None:
    report = crashed(flows.not_json)
    assert kinds(report) == {"not_json"}
    assert "the result of step opaque cannot be stored as JSON" in only(report, "not_json")


def test_a_step_that_fails_by_chance_is_named_with_the_way_to_stub_it() -> None:
    flows.UNLUCKY.clear()
    report = crashed(flows.calls_an_unlucky_step)
    found = next(each for each in report.findings if each.kind == "outcome")
    assert found.what.startswith("Without a crash it is completed with 1; after one it is failed: ConnectionError")
    assert "step unlucky failed there" in found.advice and "--stub unlucky=" in found.advice


def test_an_outcome_that_depends_on_the_crash_is_found() -> None:
    flows.SEEN.clear()
    report = crashed(flows.by_a_global)
    assert "Without a crash it is completed with 1; after one it is completed with" in only(report, "outcome")


def test_a_completed_step_that_runs_again_would_be_found() -> None:
    notes = [Note("durable", 1, run="r", leaf="a#1"), Note("body", 2, run="r", leaf="a#1", step="a", attempt=1)]
    judge = Judge(Played(None, "ended", notes, {}))
    assert [finding.kind for finding in judge.findings()] == ["executed_again"]
    hidden = [notes[0], Note("hidden", 1, run="r"), notes[1]]
    assert Judge(Played(None, "ended", hidden, {})).findings() == ()


# ---- bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"store": "cloud"}, "there is no store 'cloud'"),
        ({"max_crashes": 0}, "at least one crash"),
        ({"allow": ["weather"]}, "there are no findings weather"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(buoy.BadInput, match=words):
        crashed(flows.double_charge, **options)


def test_a_run_that_waits_for_ever_says_what_the_script_lacks() -> None:
    with pytest.raises(buoy.BadInput, match=r"waits for ever, for: Ship it\?"):
        crashed(flows.asks)


def test_a_wrong_answer_in_the_script_is_told() -> None:
    with pytest.raises(buoy.BadInput, match="expected yes or no"):
        crashed(flows.asks, answers=[{"on": "Ship it?", "answer": "perhaps"}])


# ---- real processes


@pytest.mark.parametrize("store", ["sqlite", "folder"])
def test_real_kills_happen_on_the_store_that_was_asked_for(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_store = local_host.open_store

    def opens(place: str, *rest: Any) -> Any:
        opened.append(place.partition(":")[0])
        return open_store(place, *rest)

    monkeypatch.setattr(local_host, "open_store", opens)
    report = crashed(flows.double_charge, real=True, store=store, max_crashes=1)
    assert report.reference.status == "completed"
    assert report.store == store
    assert set(opened) == {"sqlite" if store == "sqlite" else "file"}


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True], ids=["in this process", "with real kills"])
def test_a_crash_test_on_postgresql_leaves_no_schema_behind(real: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh_url()
    monkeypatch.setenv("BUOY_STORE", url)
    schemas = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^buoy_crashtest'"
    report = crashed(flows.double_charge, real=real, store="postgres", max_crashes=1 if real else None, cancels=False)
    assert report.reference.status == "completed" and report.crashes
    assert report.store == "postgres"
    assert real or kinds(report) == {"repeated"}
    assert query(url, schemas) == []
    assert query(url, "SELECT 1 FROM pg_namespace WHERE nspname = %s", (address_of(url).schema,)) == []


@pytest.mark.slow
def test_a_right_workflow_has_no_findings_on_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of timers pass in the scenario's own time: the database's clock must not leak into the outcome."""
    monkeypatch.setenv("BUOY_STORE", fresh_url())
    report = crashed(flows.checkout, answers=flows.ANSWERS, given=LAMP, store="postgres", max_crashes=2, cancels=False)
    assert report.findings == (), str(report)


def test_a_crash_test_on_postgresql_needs_a_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BUOY_STORE", f"sqlite:///{tmp_path}/runs.db")
    with pytest.raises(buoy.BadInput, match="the configured store is sqlite; set BUOY_STORE to 'postgresql://"):
        crashed(flows.double_charge, store="postgres")


@pytest.mark.slow
def test_real_kills_show_the_same() -> None:
    report = crashed(flows.checkout, answers=flows.ANSWERS, given=LAMP, real=True, max_crashes=6)
    assert report.findings == (), str(report)
    assert report.store == "sqlite"
    found = crashed(flows.double_charge, real=True)
    assert kinds(found) == {"repeated"}
    # Each process has globals of its own, so this one is right where it really matters.
    assert crashed(flows.by_a_global, real=True).ok


@pytest.mark.slow
@pytest.mark.parametrize("workflow", [flows.by_set_order, flows.by_hash], ids=lambda each: each.name)
def test_real_processes_have_hash_seeds_of_their_own(workflow: Any) -> None:
    report = crashed(workflow, real=True, max_crashes=4, cancels=False)
    assert kinds(report) == {"nondeterminism"}, str(report)
    assert "the code now calls it with" in only(report, "nondeterminism")


@pytest.mark.parametrize("workflow", [flows.by_set_order, flows.by_hash], ids=lambda each: each.name)
def test_a_replay_in_a_fresh_process_finds_what_a_crash_in_this_one_hides(workflow: Any) -> None:
    assert crashed(workflow).ok, "otherwise this shows nothing"
    report = crashed(workflow, fresh=True, max_crashes=1, cancels=False)
    assert kinds(report) == {"nondeterminism"}, str(report)
    (finding,) = report.findings
    assert finding.points == ("in a fresh process, with another hash seed",)
    assert "sort what comes from a set" in finding.advice


def test_a_fresh_process_replays_and_executes_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    given = msgspec.json.encode({"path": str(witness)})
    report = crashed(flows.leaves_a_trace, fresh=True, given=given, max_crashes=1, cancels=False)
    assert report.ok, str(report)
    assert report.notes == ()
    assert set(witness.read_text().split()) == {str(os.getpid())}


def test_code_that_depends_on_what_only_this_process_has_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "ITEM", "doubled")
    report = crashed(flows.by_a_patched_global, fresh=True, max_crashes=1, cancels=False)
    assert report.ok, str(report)
    (note,) = report.notes
    assert "fresh processes take another way than this one (reserve#1 was called with" in note
    assert f"note: {note}" in str(report)


def test_a_workflow_that_cannot_be_imported_elsewhere_is_told() -> None:
    @buoy.workflow
    async def here_only() -> str:
        return await flows.reserve("lamp")

    report = crashed(here_only, fresh=True, max_crashes=1, cancels=False)
    assert report.ok, str(report)
    (note,) = report.notes
    assert "the order of sets or on hash() was not tried" in note
    with pytest.raises(buoy.BadInput, match="define it at the top level of a module"):
        crashed(here_only, real=True)


@pytest.mark.slow
def test_a_module_that_starts_threads_is_crashed_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "threaded_flows.py"
    file.write_text(
        "import threading\nimport buoy\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "@buoy.step\nasync def act() -> str:\n    return buoy.idempotency_key()\n"
        "@buoy.workflow\nasync def acts() -> str:\n    return await act()\n"
    )
    report = crashed(find_workflow(f"{file}:acts"), real=True, max_crashes=1, cancels=False)
    assert report.ok, str(report)
    assert [crash.ended for crash in report.crashes] == ["ended", "ended"]


def test_what_the_garbage_collector_calls_is_not_held_against_the_workflow() -> None:
    looked: list[float] = []

    def callback(phase: str, info: object) -> None:
        looked.append(time.perf_counter())

    @buoy.workflow
    async def makes_rubbish() -> int:
        rubbish = [[n] for n in range(5_000)]
        return len(rubbish)

    gc.callbacks.append(callback)
    try:
        report = crashed(makes_rubbish)
    finally:
        gc.callbacks.remove(callback)
    assert kinds(report) == set()
