"""Facts in, findings out: every code of the catalogue, and what is not one of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.facts import Facts, MessageFacts, RunnerFacts, TaskFacts
from buoy.core.diagnosis.findings import REMEDIES
from buoy.core.ids import BranchId, RunId
from buoy.core.limits import QUESTION_OLD_S
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status

from .cases import (
    DEAD,
    NOW,
    WORKER,
    asked_in,
    codes,
    facts_of,
    failed_as,
    finding,
    group_started,
    healthy,
    jumped,
    lying,
    module_completed,
    module_failed,
    module_started,
)
from .logbook import (
    CANCEL,
    DONE,
    INTERRUPTED,
    PAUSED,
    answered,
    asked,
    awaited,
    branched,
    child,
    claimed,
    completed,
    created,
    log,
    retrying,
    started,
    timer,
)

TRANSIENT = e.ErrorInfo(type="ConnectionResetError", message="gone")
ODD = e.ErrorInfo(type="Odd", message="?")
SPEC = created(workflow="spec:s", version="v1")
PARKED = TaskFacts("t", 1, "parked")
DUE = {"due_at": NOW, "task": TaskFacts("t", 1, "due")}


def test_every_code_of_the_catalogue_has_its_words() -> None:
    for code, entry in CATALOGUE.items():
        assert code == entry.code
        assert entry.title
        assert entry.how.endswith(".")
        assert entry.remedy.endswith(".")


# ---- A: document and log

ANSWERED = log(created(), claimed(), asked("ask#1"), answered("ask#1"), started("a#1"))


def test_a1_waits_for_nobody() -> None:
    found = finding(facts_of(ANSWERED, claims=Status.AWAITING_INPUT), "A1")
    assert found.remedy == "branch"
    assert found.evidence["last_stable_event"] == 4
    assert found.evidence["last_stable_type"] == "interaction_response"


def test_a1_without_a_stable_event_says_so_too() -> None:
    events = log(created(), claimed(), started("a#1"))
    assert codes(facts_of(events, claims=Status.AWAITING_INPUT, **DUE)) == ["A1", "NS"]


PENDING = log(created(), claimed(), asked("ask#1"))


def test_a2_asks_and_says_it_runs() -> None:
    found = finding(facts_of(PENDING, claims=Status.RUNNING), "A2")
    assert found.evidence["question"] == "q/ask#1"
    assert found.evidence["cut_at"] == 2


def test_a2_in_a_module_that_is_no_group() -> None:
    events = log(SPEC, claimed(), group_started("s#1"), module_started("s/m#1"), asked_in("s/m/ask#1"))
    found = finding(facts_of(events), "A2")
    assert (found.evidence["cut_at"], found.evidence["leaf"]) == (4, "s/m/ask#1")


def test_a2_when_module_and_question_bear_one_name() -> None:
    events = log(SPEC, claimed(), group_started("s#1"), module_started("s/m#1"), asked_in("s/m#1"))
    assert codes(facts_of(events, **DUE)) == ["A2"]


def test_a_question_beside_a_step_that_is_under_way_is_no_a2() -> None:
    events = log(created(), claimed(), started("a#1"), asked("g.1/ask#1"))
    assert codes(facts_of(events, **DUE)) == []
    assert healthy(facts_of(events, **DUE)) == ["B1", "C1"]


FINISHED = log(
    SPEC, claimed(), group_started("a#1"), module_started("a/m#1"), module_completed("a/m#1"), completed("a#1"),
    started("b#1"), completed("b#1"),
)  # fmt: skip


def test_a3_has_done_everything_and_not_ended() -> None:
    given = facts_of(FINISHED, needs={"a": (), "b": ("a",)}, **DUE)
    assert codes(given) == ["A3"]
    assert finding(given, "A3").evidence["cut_at"] == 5
    assert codes(facts_of(FINISHED, needs={"a": (), "b": (), "c": ()}, **DUE)) == []


@pytest.mark.parametrize(("claims", "events"), [
    (Status.AWAITING_INPUT, ANSWERED),
    (Status.RUNNING, PENDING),
    (Status.RUNNING, FINISHED),
])  # fmt: skip
def test_nothing_is_judged_by_the_document_under_a_live_owner(claims: Status, events: list[e.Event]) -> None:
    assert codes(facts_of(events, claims=claims, holder=WORKER, needs={"a": (), "b": ()})) == []
    silent = RunnerFacts(id="w2", beat_age_s=1e6)
    assert codes(facts_of(events, claims=claims, holder=silent, needs={"a": (), "b": ()})) == ["H3"]


@pytest.mark.parametrize("behind", [1, 3])
def test_lag_is_not_drift(behind: int) -> None:
    stored = lying(ANSWERED, status=Status.AWAITING_INPUT, head_seq=len(ANSWERED) - behind)
    assert codes(facts_of(ANSWERED, stored=stored, **DUE)) == []


@pytest.mark.parametrize("claims", [{}, {"status": Status.AWAITING_INPUT}, {"status": Status.COMPLETED}])
def test_a_document_ahead_of_its_log_says_that_events_may_have_been_lost(claims: dict[str, Any]) -> None:
    given = facts_of(ANSWERED, stored=lying(ANSWERED, head_seq=99, **claims), **DUE)
    assert codes(given) == ["R2"]
    found = finding(given, "R2")
    assert "document is at event 99, its log ends at 5: events 6 to 99 may have been lost" in found.reason
    names = ("document_head", "log_end", "lost_from", "lost_to")
    assert tuple(found.evidence[name] for name in names) == (99, 5, 6, 99)


def test_of_one_lost_event_one_is_spoken() -> None:
    found = finding(facts_of(ANSWERED, stored=lying(ANSWERED, head_seq=6), **DUE), "R2")
    assert "ends at 5: event 6 may have been lost" in found.reason


def test_a_loss_comes_before_all_that_would_be_added_to_the_log() -> None:
    events = log(created(), claimed(), started("a#1"), failed_as("a#1", TRANSIENT))
    assert codes(facts_of(events, stored=lying(events, head_seq=9), holder=DEAD)) == ["R2", "A4", "H1"]


def test_under_a_live_owner_a_document_ahead_is_not_judged() -> None:
    assert codes(facts_of(ANSWERED, stored=lying(ANSWERED, head_seq=99), holder=WORKER)) == []


def test_a_log_that_is_gone_is_no_foreign_run() -> None:
    bare = msgspec.structs.replace(facts_of(ANSWERED), log=(), foreign=True, task=TaskFacts("t", 1, "parked"))
    assert "its log is gone: it has no events, and its document is at event 5" in finding(bare, "R1").reason


def test_a_foreign_document_is_judged_whatever_its_head() -> None:
    stored = lying(ANSWERED, status=Status.AWAITING_INPUT, head_seq=1)
    assert codes(facts_of(ANSWERED, stored=stored, foreign=True, **DUE)) == ["A1"]


def test_a_document_that_lies_otherwise_is_written_anew() -> None:
    found = finding(facts_of(PENDING, stored=lying(PENDING, queue="other")), "R2")
    assert (found.remedy, "queue" in found.reason) == ("rebuild", True)


@pytest.mark.parametrize("end", [DONE, PAUSED])
def test_a_run_that_ended_or_is_paused_is_not_branched(end: e.Body) -> None:
    events = log(*[event.body for event in ANSWERED], end)
    assert codes(facts_of(events, claims=Status.AWAITING_INPUT)) == ["R2"]


def test_a_recovery_that_nobody_has_taken_up_yet_is_not_repeated() -> None:
    made = e.WorkflowRecovered(
        reason="A3: x", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=8, finding="A3"
    )
    events = log(e.Claimed(runner="s", cause="recovered"), branched(1, 8), made, claimed("w2"), after=FINISHED)
    assert codes(facts_of(events, needs={"a": (), "b": ()}, **DUE)) == []


# ---- A4


def failure(error: e.ErrorInfo, **more: Any) -> Facts:
    return facts_of(log(created(), claimed(), started("a#1"), failed_as("a#1", error)), **more)


@pytest.mark.parametrize(("error", "remedy"), [
    (TRANSIENT, "retry"),
    (e.ErrorInfo(type="MemoryError", message=""), "retry"),
    (e.ErrorInfo(type="ValueError", message="no"), "compensate"),
    (e.ErrorInfo(type="FileNotFoundError", message="x"), "hold"),
    (ODD, "compensate"),
])  # fmt: skip
def test_a4_goes_by_the_class_of_the_error(error: e.ErrorInfo, remedy: str) -> None:
    found = finding(failure(error), "A4")
    assert (found.trouble, found.remedy) == (True, remedy)
    assert found.evidence["event"] == 4


def recovered(kind: str) -> list[e.Body]:
    """A recovery that tried the leaf again, and its failure."""
    return [
        branched(1, 2),
        e.WorkflowRecovered(
            reason="A4", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=2, finding="A4",
            evidence={"leaf": "a#1", "class": kind},
        ),
        started("a#1"),
        failed_as("a#1", TRANSIENT),
    ]  # fmt: skip


def test_a4_is_bounded_over_the_whole_log() -> None:
    bodies: list[e.Body] = [created(), claimed(), started("a#1"), failed_as("a#1", TRANSIENT)]
    seen = []
    for number in range(4):
        seen.append(finding(facts_of(log(*bodies)), "A4").remedy)
        again = recovered("transient")
        again[0] = branched(number + 1, 2, parent=number)
        bodies += again
    assert seen == ["retry", "retry", "retry", "compensate"]


def test_a4_gives_more_to_what_ran_out_of_it() -> None:
    found = finding(failure(e.ErrorInfo(type="OutOfMemory", message="", kind="resource")), "A4")
    assert found.evidence["more_factor"] == 2


def test_a4_names_the_module_and_not_the_step_around_it() -> None:
    events = log(
        SPEC, claimed(), group_started("s#1"), module_started("s/m#1"), module_failed("s/m#1", TRANSIENT),
        failed_as("s#1", TRANSIENT),
    )  # fmt: skip
    assert finding(facts_of(events), "A4").evidence["leaf"] == "s/m#1"


def test_a_failure_that_somebody_acted_on_is_no_a4() -> None:
    caught = log(created(), claimed(), started("a#1"), failed_as("a#1", TRANSIENT), started("b#1"), completed("b#1"))
    assert codes(facts_of(caught, **DUE)) == []
    beside = log(created(), claimed(), started("a#1"), started("g.1/b#1"), failed_as("a#1", TRANSIENT))
    assert codes(facts_of(beside, **DUE)) == []


def test_a_permanent_failure_that_is_queued_needs_no_recovery() -> None:
    assert codes(failure(e.ErrorInfo(type="ValueError", message=""), **DUE)) == []
    assert codes(failure(TRANSIENT, **DUE)) == ["A4"]


# ---- D

JUMPED = log(created(), claimed(), started("a#1"), completed("a#1"), jumped("a#1", 1))


def test_d2_jumped_and_never_arrived() -> None:
    found = finding(facts_of(JUMPED), "D2")
    assert (found.evidence["jump_event"], found.evidence["parent_branch"]) == (5, 0)


def test_d2_by_the_document() -> None:
    events = log(branched(1, 2, cause="jump"), after=JUMPED)
    assert codes(facts_of(events, **DUE)) == []
    given = facts_of(events, stored=lying(events, branch=BranchId(0)), **DUE)
    assert codes(given) == ["D2"]
    assert finding(given, "D2").evidence["parent_branch"] == 0


def test_a_jump_whose_branch_went_on_is_not_taken_back() -> None:
    events = log(branched(1, 2, cause="jump"), claimed(), started("a#1"), after=JUMPED)
    assert codes(facts_of(events, stored=lying(events, branch=BranchId(0)), **DUE)) == ["R2"]


def test_any_later_branch_settles_a_jump() -> None:
    events = log(branched(2, 4), after=JUMPED)
    assert codes(facts_of(events, **DUE)) == []


def test_d1_stray_branches_are_healthy() -> None:
    events = log(branched(1, 4), branched(2, 4), after=JUMPED)
    assert "D1" in healthy(facts_of(events, **DUE))


# ---- E


def spec_run(*more: e.Body, version: str = "v1", **facts: Any) -> Facts:
    return facts_of(log(created(workflow="spec:s", version=version), claimed(), started("a#1"), *more), **DUE, **facts)


def test_e2_falls_back_to_the_first_version() -> None:
    given = spec_run(e.VersionBound(version="v2"), definition="absent", initial_definition="present")
    found = finding(given, "E2")
    assert (found.remedy, found.evidence["bind_to"]) == ("bind", "v1")


@pytest.mark.parametrize("initial", ["absent", "present"])
def test_e2_without_anything_to_fall_back_to_is_held(initial: str) -> None:
    found = finding(spec_run(definition="absent", initial_definition=initial), "E2")
    assert (found.remedy, "cannot be recovered" in found.reason) == ("hold", True)


def test_e1_of_a_spec_and_of_code() -> None:
    assert finding(spec_run(version="", definition="absent", initial_definition="absent"), "E1").remedy == "hold"
    bound = spec_run(e.VersionBound(version=""), definition="absent", initial_definition="present")
    assert finding(bound, "E1").remedy == "bind"
    code = facts_of(log(created(), claimed(), started("a#1")), **DUE)
    assert (codes(code), finding(code, "E1").trouble) == ([], False)


@pytest.mark.parametrize("known", ["present", "unknown", "unneeded"])
def test_only_a_positive_absence_is_e2(known: str) -> None:
    assert codes(spec_run(definition=known)) == []


# ---- H, Q, F


def test_h1_held_by_the_dead() -> None:
    found = finding(facts_of(ANSWERED, holder=DEAD), "H1")
    assert (found.remedy, found.evidence["proof"]) == ("release", "lock free")


def test_q3_held_by_nobody_knows_whom() -> None:
    assert codes(facts_of(ANSWERED, holder=RunnerFacts(id="x", registered=False))) == ["Q3"]


def test_h2_only_while_nobody_was_called() -> None:
    events = log(created(), claimed(), INTERRUPTED)
    assert codes(facts_of(events, task=PARKED)) == ["H2"]
    assert (codes(facts_of(events, **DUE)), "H2" in healthy(facts_of(events, **DUE))) == ([], True)


@pytest.mark.parametrize(("state", "code"), [("missing", "Q1"), ("ended", "Q2")])
def test_a_run_without_its_task(state: Any, code: str) -> None:
    found = finding(facts_of(PENDING, task=TaskFacts("t", 3, state)), code)
    assert (found.remedy, found.evidence["generation"]) == ("requeue", 3)
    over = log(created(), claimed(), DONE)
    assert codes(facts_of(over, task=TaskFacts("t", 3, state))) == []


def held_until(at: float) -> e.Paused:
    return e.Paused(reason="rewind", expires_at=at)


SLEEPS = log(created(), claimed(), timer("t#1", NOW - 60))
CHILD = log(created(), claimed(), child("c#1"))

Q4: list[tuple[str, Facts, bool]] = [
    ("an overdue timer", facts_of(SLEEPS), True),
    ("an overdue timer that is queued", facts_of(SLEEPS, **DUE), False),
    ("a timer to come", facts_of(log(created(), claimed(), timer("t#1", NOW + 60)), due_at=NOW + 60), False),
    ("a timer a moment late", facts_of(log(created(), claimed(), timer("t#1", NOW - 1))), False),
    ("a retry", facts_of(log(created(), claimed(), started("a#1"), retrying("a#1", due_at=NOW - 60))), True),
    ("a wait that timed out", facts_of(log(created(), claimed(), awaited("s#1", NOW - 60))), True),
    ("an answer", facts_of(PENDING, messages=(MessageFacts(1, "answer", "q/ask#1"),)), True),
    ("an answer to another question", facts_of(PENDING, messages=(MessageFacts(1, "answer", "q/x"),)), False),
    ("a signal that is waited for", facts_of(log(created(), claimed(), awaited("s#1")),
                                             messages=(MessageFacts(1, "signal", "packed"),)), True),
    ("a signal for later", facts_of(PENDING, messages=(MessageFacts(1, "signal", "packed"),)), False),
    ("a cancel", facts_of(PENDING, messages=(MessageFacts(1, "cancel"),)), True),
    ("a message for the owner", facts_of(PENDING, holder=WORKER, messages=(MessageFacts(1, "cancel"),)), False),
    ("a child that ended", facts_of(CHILD, children={RunId("child-1"): "failed"}), True),
    ("a child that ended, under an owner", facts_of(CHILD, holder=WORKER, children={RunId("child-1"): "completed"}),
     True),
    ("a child that is about to say so", facts_of(CHILD, children={RunId("child-1"): "ending"}), False),
    ("a child that ended and said so", facts_of(CHILD, children={RunId("child-1"): "failed"}, holder=WORKER,
                                                messages=(MessageFacts(1, "child_finished", "child-1"),)), False),
    ("a child that was never made", facts_of(CHILD, children={RunId("child-1"): "absent"}), True),
    ("a child at work", facts_of(CHILD, children={RunId("child-1"): "running"}), False),
    ("ready, and never started", facts_of(log(created()), task=PARKED), True),
    ("its own code, parked", facts_of(log(created(), claimed())), True),
    ("a question", facts_of(PENDING), False),
    ("a paused run", facts_of(log(created(), claimed(), timer("t#1", NOW - 60), PAUSED)), False),
    ("a paused run and a child that was never made", facts_of(log(created(), claimed(), child("c#1"), PAUSED),
                                                              children={RunId("child-1"): "absent"}), False),
    ("a pause that is to end by itself", facts_of(log(created(), claimed(), held_until(NOW + 20))), False),
    ("a pause that should have ended by itself", facts_of(log(created(), claimed(), held_until(NOW - 60))), True),
    ("a paused run and its resume", facts_of(log(created(), claimed(), PAUSED), messages=(MessageFacts(1, "resume"),)),
     True),
    ("an ended run", facts_of(log(created(), claimed(), CANCEL, DONE), messages=(MessageFacts(1, "cancel"),)), False),
]  # fmt: skip


@pytest.mark.parametrize(("given", "lost"), [row[1:] for row in Q4], ids=[row[0] for row in Q4])
def test_q4_is_what_should_have_woken_it_and_did_not(given: Facts, lost: bool) -> None:
    assert ("Q4" in codes(given)) is lost


def test_q5_nobody_alive_can_run_it() -> None:
    found = finding(facts_of(ANSWERED, runners=(), **DUE), "Q5")
    assert (found.remedy, "no worker is alive" in found.reason) == ("report", True)
    assert codes(facts_of(PENDING, runners=())) == []


def test_q6_somebody_elses() -> None:
    given = Facts(document=lying(PENDING), now=NOW, log=(), stored=lying(PENDING), foreign=True, task=TaskFacts())
    assert [(each.code, each.remedy) for each in diagnose(given)] == [("Q6", "adopt")]


def test_f1_and_f2_are_about_who_watches() -> None:
    queued = facts_of(ANSWERED, stream_open=True, **DUE)
    assert (codes(queued), healthy(queued)) == ([], ["F1", "C1"])
    put_off = facts_of(ANSWERED, stream_open=True, **(DUE | {"due_at": NOW + 60.0}))
    assert (codes(put_off), finding(put_off, "F1").remedy) == (["F1"], "requeue")
    alone = facts_of(ANSWERED, stream_open=True, runners=(), **DUE)
    assert (codes(alone), finding(alone, "F1").remedy) == (["Q5", "F1"], "report")
    watched = facts_of(ANSWERED, holder=WORKER, stream_open=True)
    assert (codes(watched), healthy(watched)) == ([], [])
    assert healthy(facts_of(ANSWERED, holder=WORKER, stream_open=False)) == ["F2"]


def test_p1_goes_before_the_release_of_what_the_dead_held() -> None:
    bodies: list[e.Body] = [created(), claimed(), started("a#1")]
    for _ in range(9):
        bodies.append(e.Claimed(runner="w", cause="taken_over", evidence={"proof": "lock free", "solo": True}))
    found = codes(facts_of(log(*bodies), holder=DEAD))
    assert found == ["P1", "H1"]


# ---- what is healthy


def test_questions_may_be_old() -> None:
    assert healthy(facts_of(PENDING)) == ["B1"]
    assert healthy(facts_of(PENDING, now=NOW + QUESTION_OLD_S)) == ["B2"]


def test_what_is_under_way_is_not_an_issue() -> None:
    events = log(SPEC, claimed(), group_started("s#1"), module_started("s/m#1"))
    assert healthy(facts_of(events, **DUE)) == ["C2", "C1"]
    assert healthy(facts_of(events, holder=WORKER)) == []


def test_what_cannot_be_read_stops_the_diagnosis() -> None:
    given = Facts(document=lying(PENDING), now=NOW, unreadable="event 3 is missing", holder=DEAD)
    assert [(each.code, each.remedy, each.trouble) for each in diagnose(given)] == [("R1", "none", True)]
    headless = msgspec.structs.replace(facts_of(PENDING), log=tuple(log(claimed(), started("a#1"))))
    assert codes(headless) == ["R1"]


def test_without_a_log_only_owner_and_task_are_judged() -> None:
    given = Facts(document=lying(PENDING, status=Status.RUNNING), now=NOW, holder=DEAD)
    assert codes(given) == ["H1"]


def test_every_remedy_is_one_of_those_that_there_are() -> None:
    for given in (row[1] for row in Q4):
        assert all(each.remedy in REMEDIES for each in diagnose(given))
