"""Findings in, plans out: where a branch is cut, what it keeps, and what runs again."""

from __future__ import annotations

import msgspec
import pytest

from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import BranchId, LeafId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.core.remedy.plan import FROM_THE_START, plan_recovery
from buoy.core.remedy.policy import Decision, decide, lookup_policy

from .cases import (
    DEAD,
    after,
    asked_in,
    carried_out,
    codes,
    facts_of,
    failed_as,
    finding,
    group_started,
    jumped,
    lying,
    module_completed,
    module_started,
    planned,
    planned_as,
)
from .logbook import (
    RUN,
    answered,
    asked,
    awaited,
    branched,
    child,
    claimed,
    completed,
    created,
    fired,
    log,
    received,
    started,
    timer,
    undoing,
)

SPEC = created(workflow="spec:s", version="v1")
TRANSIENT = e.ErrorInfo(type="ConnectionResetError", message="gone")
AWAITING = Status.AWAITING_INPUT


def test_a1_goes_on_from_the_last_stable_event() -> None:
    events = log(
        created(), claimed(), started("a#1"), completed("a#1"), asked("ask#1"), answered("ask#1"), started("b#1")
    )
    given = facts_of(events, claims=AWAITING)
    plan = planned(given, "A1")
    assert (plan.branch, plan.parent, plan.cutoff_seq) == (1, 0, 6)
    assert (plan.kept, plan.dropped, plan.again) == ((), ("b#1",), ("b#1",))
    state = after(events, plan)
    assert {leaf.id: leaf.phase for leaf in state.leaves.values()} == {"a#1": "completed", "ask#1": "completed"}
    assert state.epochs == {}


def test_the_audit_has_the_seeds_keys() -> None:
    events = log(created(), claimed(), started("a#1"), completed("a#1"), started("b#1"))
    given = facts_of(events, claims=AWAITING)
    plan = planned(given, "A1")
    made, told = plan.bodies
    assert isinstance(made, e.BranchCreated)
    assert isinstance(told, e.WorkflowRecovered)
    assert made.cause == "recovery"
    assert (told.previous_branch, told.new_branch, told.cutoff_event) == (0, 1, 4)
    assert told.reason == plan.reason == "A1: status awaiting_input but no pending interaction"
    assert (told.finding, told.policy, told.actor, told.evidence["last_stable_event"]) == ("A1", "resume", "me", 4)
    appended = append(RUN, events, [e.Claimed(runner="me", cause="recovered"), *plan.bodies], 5.0, "n").events
    assert [(each.seq, each.branch, each.nonce) for each in appended] == [(6, 0, "n"), (7, 1, None), (8, 1, None)]


def test_without_a_stable_event_it_begins_anew_and_says_so() -> None:
    events = log(created(), claimed(), started("a#1"))
    plan = planned(facts_of(events, claims=AWAITING), "A1")
    assert (plan.cutoff_seq, plan.again) == (0, ("a#1",))
    assert plan.reason.endswith(FROM_THE_START)
    assert planned(facts_of(events, claims=AWAITING), "NS").cutoff_seq == 0


def test_a2_of_code_asks_the_same_question_again() -> None:
    events = log(created(), claimed(), started("a#1"), completed("a#1"), asked("ask#1"))
    plan = planned(facts_of(events, claims=Status.RUNNING), "A2")
    assert (plan.cutoff_seq, plan.again) == (4, ("ask#1",))
    state = after(events, plan)
    assert state.questions() == []
    assert state.key(LeafId("ask#1")) == "run-1/ask#1/0"


@pytest.mark.parametrize("group", [True, False])
def test_a2_of_a_module_is_cut_at_its_start(group: bool) -> None:
    events = log(
        SPEC, claimed(), group_started("s#1"), module_started("s/m#1"), module_completed("s/m#1"),
        module_started("s/n#1", group=group), asked_in("s/n/ask#1"),
    )  # fmt: skip
    plan = planned(facts_of(events, claims=Status.RUNNING, needs={"s": ()}), "A2")
    assert (plan.cutoff_seq, plan.dropped) == (6, ("s/n/ask#1",))
    state = after(events, plan)
    assert set(state.open) == {"s#1", "s/n#1"}
    assert state.leaves[LeafId("s/m#1")].phase == "completed"


def test_a3_executes_nothing_again() -> None:
    events = log(
        SPEC, claimed(), group_started("a#1"), module_started("a/m#1"), module_completed("a/m#1"), completed("a#1"),
        started("b#1"), completed("b#1"),
    )  # fmt: skip
    plan = planned(facts_of(events, needs={"a": (), "b": ("a",)}), "A3")
    assert (plan.cutoff_seq, plan.kept, plan.again) == (5, ("a#1", "b#1"), ())
    state = after(events, plan)
    assert all(leaf.phase == "completed" for leaf in state.leaves.values())
    assert len(state.leaves) == 3


def test_a3_without_modules_is_cut_at_the_last_step() -> None:
    events = log(SPEC, claimed(), started("a#1"), completed("a#1"), started("b#1"), completed("b#1"))
    assert planned(facts_of(events, needs={"a": (), "b": ()}), "A3").cutoff_seq == 6


# ---- A4 and what does not depend on it


def test_a4_tries_the_leaf_again_and_keeps_what_ran_beside_it() -> None:
    events = log(
        created(), claimed(), started("g.1/a#1"), started("g.2/b#1"), completed("g.2/b#1"),
        failed_as("g.1/a#1", TRANSIENT),
    )  # fmt: skip
    plan = planned(facts_of(events), "A4")
    assert (plan.action, plan.cutoff_seq) == ("retry", 2)
    assert (plan.kept, plan.dropped, plan.again) == (("g.2/b#1",), ("g.1/a#1",), ("g.1/a#1",))
    assert set(after(events, plan).leaves) == {"g.2/b#1"}


def test_a4_of_code_drops_what_began_after_the_failure() -> None:
    events = log(
        created(), claimed(), started("a#1"), failed_as("a#1", TRANSIENT), asked("ask#1"), answered("ask#1"),
        timer("t#1"), fired("t#1"), started("b#1"), failed_as("b#1", TRANSIENT),
    )  # fmt: skip
    given = facts_of(events)
    found = msgspec.structs.replace(finding(given, "A4"), evidence={"leaf": "a#1", "class": "transient"})
    plan = planned_as(given, found, Decision("retry", ""))
    assert plan.cutoff_seq == 2
    assert plan.dropped == ("a#1", "t#1", "b#1")
    assert plan.kept == ("ask#1",)  # a person is not asked twice


def test_a4_of_a_spec_goes_by_the_graph_and_not_by_time() -> None:
    events = log(
        SPEC, claimed(), started("a#1"), started("b#1"), completed("b#1"), started("c#1"), completed("c#1"),
        failed_as("a#1", TRANSIENT),
    )  # fmt: skip
    needs: dict[str, tuple[str, ...]] = {"a": (), "b": (), "c": ("b",), "d": ("a",)}
    plan = planned(facts_of(events, needs=needs), "A4")
    assert (plan.kept, plan.dropped) == (("b#1", "c#1"), ("a#1",))
    late = log(
        SPEC, claimed(), started("a#1"), failed_as("a#1", TRANSIENT), started("b#1"), completed("b#1"), started("d#1"),
        completed("d#1"), started("e#1"), failed_as("e#1", TRANSIENT),
    )  # fmt: skip
    given = facts_of(late, needs=needs | {"e": ()})
    found = Finding(code="A4", trouble=True, reason="x", remedy="retry", evidence={"leaf": "a#1"})
    plan = planned_as(given, found, Decision("retry", ""))
    assert (plan.kept, plan.dropped) == (("b#1",), ("a#1", "d#1", "e#1"))


@pytest.mark.parametrize(("error", "policy", "action", "last"), [
    ("ValueError", "resume", "compensate", None),
    ("ValueError", "fail", "compensate", None),
    ("FileNotFoundError", "resume", "hold", e.Paused),
    ("Odd", "resume", "compensate", None),
    ("Odd", "hold", "hold", e.Paused),
    ("Odd", "fail", "fail", e.WorkflowFailed),
    ("Odd", "restart", "restart", e.WorkflowRecovered),
])  # fmt: skip
def test_a4_by_class_and_policy(error: str, policy: str, action: str, last: type[e.Payload] | None) -> None:
    events = log(created(), claimed(), started("a#1"), failed_as("a#1", e.ErrorInfo(type=error, message="x")))
    plan = planned(facts_of(events), "A4", policy)
    assert plan.action == action
    assert (type(plan.bodies[-1]) if plan.bodies else None) is last
    assert plan.wakes is (action in ("compensate", "restart"))


# ---- what waits


def test_waits_go_on_waiting() -> None:
    events = log(
        created(), claimed(), started("a#1"), completed("a#1"), timer("g.1/t#1"), awaited("g.2/s#1"), child("g.3/c#1"),
        asked("g.4/ask#1"), started("g.5/b#1"),
    )  # fmt: skip
    state = fold(RUN, events)
    given = facts_of(events, stored=msgspec.structs.replace(document(state), status=AWAITING), claims=None)
    found = Finding(code="A1", trouble=True, reason="x", remedy="branch")
    plan = planned_as(given, found, Decision("resume", ""))
    assert (plan.cutoff_seq, plan.dropped) == (4, ("g.5/b#1",))
    assert set(after(events, plan).open) == {"g.1/t#1", "g.2/s#1", "g.3/c#1", "g.4/ask#1"}


def test_a_message_whose_effect_is_hidden_is_unread_again() -> None:
    events = log(
        created(), claimed(), started("a#1"), failed_as("a#1", TRANSIENT), awaited("s#1"), received("s#1", message=3),
        started("b#1"), failed_as("b#1", TRANSIENT),
    )  # fmt: skip
    found = Finding(code="A4", trouble=True, reason="x", remedy="retry", evidence={"leaf": "a#1"})
    plan = planned_as(facts_of(events), found, Decision("retry", ""))
    assert (3 in fold(RUN, events).consumed, 3 in after(events, plan).consumed) == (True, False)


def test_what_was_undone_is_done_again_with_all_that_rests_on_it() -> None:
    events = log(
        created(), claimed(), started("a#1"), completed("a#1"), started("b#1"), completed("b#1"), undoing("a#1"),
    )  # fmt: skip
    found = Finding(code="A1", trouble=True, reason="x", remedy="branch")
    plan = planned_as(facts_of(events), found, Decision("resume", ""))
    assert plan.dropped == ("a#1", "b#1")
    state = after(events, plan)
    assert state.leaves == {}
    assert state.key(LeafId("a#1")) == "run-1/a#1/1"  # a new effect: the old one was undone
    assert state.key(LeafId("b#1")) == "run-1/b#1/0"


def test_an_open_step_around_the_cut_keeps_its_attempts() -> None:
    events = log(
        created(), claimed(), started("g.1/a#1"), started("g.2/b#1"), completed("g.2/b#1"),
        e.RetryScheduled(leaf=LeafId("g.1/a#1"), attempt=1, due_at=9e9, error=TRANSIENT), started("g.1/a#1", 2),
    )  # fmt: skip
    plan = planned(facts_of(events, claims=AWAITING), "A1")
    assert (plan.cutoff_seq, plan.kept, plan.again) == (5, ("g.1/a#1",), ("g.1/a#1",))
    assert after(events, plan).leaves[LeafId("g.1/a#1")].attempt == 2


# ---- D2, restart and the rest


def test_d2_takes_the_jump_back() -> None:
    events = log(created(), claimed(), started("a#1"), completed("a#1"), jumped("a#1", 1))
    plan = planned(facts_of(events), "D2")
    assert (plan.branch, plan.parent, plan.cutoff_seq) == (1, 0, 4)
    assert codes(facts_of(carried_out(events, plan), due_at=0.0)) == []


def test_d2_by_the_document_goes_on_where_the_run_was() -> None:
    events = log(
        created(), claimed(), started("a#1"), completed("a#1"), jumped("a#1", 1),
        branched(1, 2, dropped=("a#1",), cause="jump"),
    )  # fmt: skip
    given = facts_of(events, stored=lying(events, branch=BranchId(0)))
    plan = planned(given, "D2")
    assert (plan.branch, plan.parent, plan.cutoff_seq) == (2, 0, 4)
    assert after(events, plan).leaves[LeafId("a#1")].phase == "completed"


def test_a_jump_of_a_paused_run_is_taken_back_and_it_stays_paused() -> None:
    events = log(created(), claimed(), e.Paused(reason="user"), jumped("a#1", 1))
    plan = planned(facts_of(events), "D2")
    assert plan.wakes is False
    assert after(events, plan).status is Status.PAUSED


def test_a_restart_is_a_recovery_and_keeps_answers_and_keys() -> None:
    events = log(
        created(), claimed(), started("a#1"), completed("a#1"), asked("ask#1"), answered("ask#1"), started("b#1")
    )
    plan = planned(facts_of(events, holder=DEAD), "H1", "restart")
    assert (plan.action, plan.cutoff_seq, plan.again) == ("restart", 0, ("a#1", "b#1"))
    made = plan.bodies[0]
    assert isinstance(made, e.BranchCreated)
    assert made.cause == "restart"
    state = after(events, plan)
    assert {leaf.id: leaf.phase for leaf in state.leaves.values()} == {"ask#1": "completed"}
    assert state.epochs == {}


@pytest.mark.parametrize(("policy", "action"), [
    ("resume", "resume"), ("restart", "restart"), ("fail", "fail"), ("hold", "hold"), ("what", "skip"),
])  # fmt: skip
def test_the_policy_is_about_work_that_was_under_way(policy: str, action: str) -> None:
    busy = facts_of(log(created(), claimed(), started("a#1")), holder=DEAD)
    assert planned(busy, "H1", policy).action == action
    for quiet in (
        log(created()),
        log(created(), claimed(), asked("ask#1")),
        log(created(), claimed(), started("a#1"), completed("a#1"), undoing("a#1")),
    ):
        given = facts_of(quiet, holder=DEAD)
        assert planned(given, "H1", policy).action == "resume"


def test_a_failed_run_says_what_was_decided() -> None:
    given = facts_of(log(created(), claimed(), started("a#1")), holder=DEAD)
    found = finding(given, "H1")
    plan = planned_as(given, found, decide(found, "fail", given, orphaned=True))
    state = after(given.log or (), plan)
    assert (state.status, plan.ends, plan.wakes) == (Status.FAILED, True, False)
    assert state.error is not None
    assert (state.error.kind, "H1" in state.error.message) == ("orphaned", True)


def test_what_only_needs_a_task_changes_nothing_else() -> None:
    given = facts_of(log(created(), claimed(), timer("t#1", 1.0)))
    plan = planned(given, "Q4", "fail")
    assert (plan.action, plan.bodies, plan.wakes, plan.branch) == ("resume", (), True, None)


def test_a_version_is_bound_and_an_unrecoverable_one_held() -> None:
    events = log(SPEC, claimed(), started("a#1"), e.VersionBound(version="v2"))
    plan = planned(facts_of(events, definition="absent", initial_definition="present"), "E2")
    assert after(events, plan).version == "v1"
    held = planned(facts_of(events, definition="absent", initial_definition="absent"), "E2")
    assert held.error is not None
    state = after(events, held)
    assert (state.status, state.pause and state.pause.reason) == (Status.PAUSED, "hold")


def test_a_skipped_finding_appends_nothing() -> None:
    given = facts_of(log(created(), claimed(), started("a#1")), runners=(), due_at=0.0)
    plan = planned(given, "Q5")
    assert (plan.action, plan.bodies, plan.wakes) == ("skip", (), False)


def test_a_branch_of_a_branch() -> None:
    events = log(
        created(), claimed(), started("a#1"), completed("a#1"), branched(1, 4), claimed(), started("b#1"),
        completed("b#1"), started("c#1"),
    )  # fmt: skip
    plan = planned(facts_of(events, claims=AWAITING), "A1")
    assert (plan.branch, plan.parent, plan.cutoff_seq, plan.again) == (2, 1, 8, ("c#1",))
    assert set(after(events, plan).leaves) == {"a#1", "b#1"}


# ---- where a policy comes from

DOC = document(fold(RUN, log(created())))


def test_policies_are_looked_up_in_order() -> None:
    assert lookup_policy(DOC, lambda doc: "hold", lambda doc: "fail", "restart").policy == "hold"
    assert lookup_policy(DOC, lambda doc: None, lambda doc: "fail", "restart").policy == "fail"
    assert lookup_policy(DOC, None, lambda doc: None, "restart").source == "stored"
    nobody = lookup_policy(DOC, None, lambda doc: None, None)
    assert (nobody.policy, nobody.orphaned) == ("fail", True)


def test_a_lookup_that_fails_leaves_the_run_alone() -> None:
    def broken(doc: object) -> str:
        raise KeyError("registry")

    for ruling in (lookup_policy(DOC, broken, None, "resume"), lookup_policy(DOC, None, None, "explode")):
        assert (ruling.policy, ruling.orphaned) == (None, False)
        assert ruling.problem


def test_a_plan_needs_no_graph_and_no_actor() -> None:
    events = log(SPEC, claimed(), started("a#1"))
    found = Finding(code="A1", trouble=True, reason="x", remedy="branch")
    assert plan_recovery(RUN, events, found, Decision("resume", "")).again == ("a#1",)
