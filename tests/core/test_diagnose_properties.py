"""Facts that hold for every log and document, however damaged: a diagnosis never raises, a recovery loses nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from buoy.core.diagnosis.crash_loops import crashes
from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.facts import Facts, MessageFacts, ProgressFacts, RunnerFacts, TaskFacts, milestones_of
from buoy.core.diagnosis.findings import REMEDIES, first_trouble
from buoy.core.diagnosis.health import judge
from buoy.core.explain.explain import explain
from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.document import Document, OpenLeaf, document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.core.remedy.plan import RecoveryPlan, plan_recovery
from buoy.core.remedy.policy import POLICIES, decide

from .logbook import RUN
from .test_properties import LEAVES, TIMES, logs

STATUSES = st.sampled_from(list(Status))
OPEN = st.builds(
    OpenLeaf, leaf=LEAVES, kind=st.sampled_from(["step", "module", "ask", "signal", "timer", "child", "group", "?"]),
    name=st.just("x"), since=TIMES, retrying=st.booleans(), due_at=st.none() | TIMES,
    question_id=st.none() | st.just("q/x"),
)  # fmt: skip
WRONG = st.fixed_dictionaries({}, optional={
    "status": STATUSES, "head_seq": st.integers(0, 40), "branch": st.integers(0, 5).map(BranchId), "version": st.text(),
    "open": st.lists(OPEN, max_size=3).map(tuple), "updated_at": TIMES, "wake_at": st.none() | TIMES,
    "policy": st.sampled_from([*POLICIES, "", "?"]),
})  # fmt: skip
RUNNERS = st.builds(
    RunnerFacts, id=st.just("w"), registered=st.booleans(), beat_age_s=st.none() | TIMES, suspected=st.booleans(),
    gone_why=st.none() | st.just("stopped"), proof=st.none() | st.just({"proof": "lock free"}),
)  # fmt: skip
TASKS = st.none() | st.builds(
    TaskFacts, id=st.sampled_from(["", "t"]), state=st.sampled_from(["due", "held", "parked", "missing", "ended"])
)  # fmt: skip
MESSAGES = st.builds(
    MessageFacts, number=st.integers(1, 9), about=st.sampled_from(["", "q/x", "child-1"]),
    kind=st.sampled_from(["answer", "signal", "cancel", "child_finished", "step_result", "?"]),
)  # fmt: skip
PRESENCE = st.sampled_from(["present", "absent", "unneeded", "unknown"])
OTHERS = st.fixed_dictionaries({"now": TIMES}, optional={
    "holder": st.none() | RUNNERS, "due_at": st.none() | TIMES, "runners": st.lists(RUNNERS, max_size=2).map(tuple),
    "task": TASKS, "messages": st.lists(MESSAGES, max_size=2).map(tuple), "definition": PRESENCE,
    "initial_definition": PRESENCE, "needs": st.none() | st.just({"a": (), "b": ("a",), "g.1": ("b",)}),
    "children": st.just({}) | st.just({RunId("child-1"): "failed"}) | st.just({RunId("child-1"): "absent"}),
    "child_troubles": st.just({}) | st.just({RunId("child-1"): "stalled: x"}),
    "stream_open": st.none() | st.booleans(), "foreign": st.booleans(), "stale_after_s": st.none() | TIMES,
    "progress": st.none() | st.builds(ProgressFacts, at=TIMES), "drift": st.none() | st.just("x"),
})  # fmt: skip
CLAIM = e.Claimed(runner="me", cause="recovered")
SOME = Document(run_id=RUN, workflow="order", status=Status.RUNNING, head_seq=0, created_at=0.0, updated_at=0.0)


def found(events: list[e.Event], wrong: dict[str, Any], others: dict[str, Any]) -> Facts:
    state = fold(RUN, events)
    true = SOME if state.created is None else document(state)
    stored = msgspec.structs.replace(true, **wrong)
    return Facts(document=true, stored=stored, log=tuple(events), milestones=milestones_of(events), **others)


FACTS = st.builds(found, logs(), WRONG, OTHERS)


@given(FACTS)
def test_a_diagnosis_never_raises_and_gives_reasons(facts: Facts) -> None:
    for each in diagnose(facts):
        assert "cannot be judged" not in each.reason
        assert each.reason
        assert "\n" not in each.reason
        assert each.remedy in REMEDIES
        assert each.trouble or each.remedy == "none"


@given(FACTS)
def test_words_are_found_for_everything(facts: Facts) -> None:
    told = explain(facts)
    assert told.headline
    assert told.now or told.evidence
    assert judge(facts).reasons


@given(FACTS)
def test_without_its_log_a_run_can_be_judged_too(facts: Facts) -> None:
    bare = msgspec.structs.replace(facts, log=None, stored=None)
    assert all("cannot be judged" not in each.reason for each in diagnose(bare))
    assert explain(bare).headline


def plan_for(facts: Facts, policy: str) -> RecoveryPlan | None:
    trouble = first_trouble(diagnose(facts))
    if trouble is None or not facts.log or fold(RUN, facts.log).created is None:
        return None
    return plan_recovery(RUN, facts.log, trouble, decide(trouble, policy, facts), "me", needs=facts.needs)


@given(FACTS, st.sampled_from(POLICIES))
def test_a_recovery_can_always_be_written_down(facts: Facts, policy: str) -> None:
    plan = plan_for(facts, policy)
    if plan is None:
        return
    log = facts.log or ()
    events = append(RUN, log, [CLAIM, *plan.bodies], log[-1].at, "n").events
    before, state = fold(RUN, log), fold(RUN, [*log, *events])
    assert [each.seq for each in events] == list(range(len(log) + 1, len(log) + 1 + len(events)))
    assert not state.anomalies[len(before.anomalies) :]
    assert set(plan.kept).isdisjoint(plan.dropped)
    if plan.branch is None:
        return
    assert all(leaf not in state.leaves for leaf in plan.dropped)
    assert all(leaf in state.leaves for leaf in plan.kept)
    undone = {each.body.leaf for each in log if isinstance(each.body, e.CompensationStarted)}
    assert {leaf for leaf in state.epochs if state.epochs[leaf] != before.epochs.get(leaf, 0)} <= undone


def sound(leaves: int, ends: list[str], order: list[int]) -> list[e.Event]:
    """A log in which leaves begin and end as they do in life, in any order."""
    bodies: list[e.Body] = [
        e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"[]")), e.Claimed(runner="w", cause="created"),
    ]  # fmt: skip
    begun: set[int] = set()
    for turn in order:
        number, name = turn % leaves, LeafId(f"g.{turn % leaves}/a#1")
        if number not in begun:
            begun.add(number)
            bodies.append(e.StepStarted(leaf=name, name="a"))
        elif ends[number % len(ends)] == "completes" and e.StepCompleted(leaf=name) not in bodies:
            bodies.append(e.StepCompleted(leaf=name))
    return [e.Event(place, 1000.0 + place, body) for place, body in enumerate(bodies, 1)]


SOUND = st.builds(
    sound, st.integers(1, 5), st.lists(st.sampled_from(["completes", "hangs"]), min_size=1, max_size=5),
    st.lists(st.integers(0, 20), max_size=20),
)  # fmt: skip


@given(SOUND, st.sampled_from([Status.AWAITING_INPUT, Status.RUNNING]))
def test_no_completed_leaf_is_executed_again_by_a_recovery(events: list[e.Event], claims: Status) -> None:
    facts = found(events, {"status": claims}, {"now": 2000.0})
    plan = plan_for(facts, "resume")
    if plan is None:
        return
    before = fold(RUN, events)
    after = fold(RUN, [*events, *append(RUN, events, [CLAIM, *plan.bodies], 2000.0, "n").events])
    done = {leaf.id for leaf in before.leaves.values() if leaf.phase == "completed"}
    assert done == {leaf.id for leaf in after.leaves.values() if leaf.phase == "completed"}
    assert done.isdisjoint(plan.again)
    assert set(plan.again) == set(before.open)


@given(FACTS)
def test_a_recovery_removes_what_it_was_made_for(facts: Facts) -> None:
    facts = msgspec.structs.replace(facts, holder=None, foreign=False)
    plan = plan_for(facts, "resume")
    if plan is None or plan.branch is None:
        return
    log = [*(facts.log or ()), *append(RUN, facts.log or (), [CLAIM, *plan.bodies], 1.0, "n").events]
    again = msgspec.structs.replace(found(log, {}, {"now": facts.now}), needs=facts.needs)
    assert plan.finding.code not in [each.code for each in diagnose(again) if each.trouble]


@given(FACTS, st.integers(1, 2**70), st.sampled_from(POLICIES))
def test_a_loss_is_written_down_before_anything_else_and_hides_nothing(facts: Facts, more: int, policy: str) -> None:
    state = fold(RUN, facts.log or ())
    # To a run that lives in another store nothing is appended.
    if state.created is None or state.status is Status.MOVED or facts.live_owner:
        return
    end = len(facts.log or ())
    ahead = msgspec.structs.replace(facts.stored or SOME, head_seq=end + more)
    facts = msgspec.structs.replace(facts, stored=ahead)
    plan = plan_for(facts, policy)
    assert plan is not None and plan.finding.code == "R2"
    (body,) = plan.bodies
    assert isinstance(body, e.WorkflowRecovered)
    assert (body.evidence["document_head"], body.evidence["log_end"], body.cutoff_event) == (end + more, end, end)
    before, after = (
        fold(RUN, facts.log or ()),
        fold(RUN, [*(facts.log or ()), *append(RUN, facts.log or (), [CLAIM, *plan.bodies], 1.0, "n").events]),
    )
    assert (after.leaves, after.open, after.branch, after.status) == (
        before.leaves, before.open, before.branch, before.status,
    )  # fmt: skip


@given(logs())
def test_crashes_can_be_counted_in_any_log(events: list[e.Event]) -> None:
    counted = crashes(events)
    assert 0 <= counted.solo <= counted.in_a_row
