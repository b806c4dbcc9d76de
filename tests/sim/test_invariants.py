"""Every invariant can fail: a check that nothing can break says nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from buoy.core import events as e
from buoy.core.document import document
from buoy.core.ids import LeafId, RunId
from buoy.core.state import fold
from buoy.ports import Message
from buoy.testing.sim.invariants import CHECKS, Evidence, broken
from buoy.testing.sim.programs import Node
from buoy.testing.sim.witness import Acknowledged, BodyEvent, Sent

RUN = "run-1"
PROGRAM = Node("seq", "main", (Node("step", "n1"), Node("signal", "n2", name="go")))


def _log(*commits: tuple[e.Body, ...]) -> list[e.Event]:
    events: list[e.Event] = []
    for number, commit in enumerate(commits, 1):
        for place, body in enumerate(commit):
            events.append(e.Event(len(events) + 1, 100.0 + number, body, nonce=f"c{number}" if place == 0 else None))
    return events


CREATED = e.WorkflowCreated(workflow="sim_async", input=msgspec.Raw(b"{}"))
STEP, WAIT = LeafId("work#1"), LeafId("signal:go#1")
COMMITS: list[tuple[e.Body, ...]] = [
    (CREATED, e.Claimed(runner="w1", cause="created"), e.StepStarted(leaf=STEP, name="work", key="k")),
    (e.StepCompleted(leaf=STEP, result=msgspec.Raw(b'"n1"')), e.SignalWaited(leaf=WAIT, name="go")),
    (e.Claimed(runner="w2", cause="taken_over"),),
    (
        e.SignalReceived(leaf=WAIT, message=1, payload=msgspec.Raw(b'{"value":"go"}')),
        e.WorkflowCompleted(result=msgspec.Raw(b'["n1","go"]')),
    ),
]
SIGNAL = Message(
    RunId(RUN), "signal", "d1", msgspec.Raw(b'{"name":"go","payload":{"value":"go"}}'), sent_at=101.0, number=1
)


def sound(logged: list[tuple[e.Body, ...]] = COMMITS, **changes: object) -> Evidence:
    """A run that kept every promise, or one with these changes."""
    log = _log(*logged)
    body = BodyEvent(101.0, "start", RUN, STEP, 1, "k", "w1")
    evidence = Evidence(
        run_id=RUN,
        log=log,
        inbox=[SIGNAL],
        document=document(fold(RunId(RUN), log)),
        program=PROGRAM,
        started=True,
        writers={"c1": "w1", "c2": "w1", "c3": "w2", "c4": "w2"},
        commits=[Acknowledged(RUN, "c2", 4, 5, "w1")],
        sends=[Sent(RUN, 1, "d1", "signal")],
        bodies=[body],
    )
    for name, value in changes.items():
        setattr(evidence, name, value)
    return evidence


def _without(seq: int) -> Evidence:
    evidence = sound()
    evidence.log = [event for event in evidence.log if event.seq != seq]
    return evidence


def _other_key() -> Evidence:
    evidence = sound()
    return sound(bodies=[*evidence.bodies, BodyEvent(102.0, "start", RUN, STEP, 1, "other", "w2")])


DONE = e.WorkflowCompleted(result=msgspec.Raw(b"1"))


def _child(status: str) -> list[tuple[e.Body, ...]]:
    leaf = LeafId("sim_sync#1")
    return [
        (e.ChildStarted(leaf=leaf, child=RunId("c"), workflow="sim_sync", input=msgspec.Raw(b"{}")),),
        (e.ChildFinished(leaf=leaf, child=RunId("c"), status=status, message=1),),
    ]


def _undone(*leaves: str) -> list[tuple[e.Body, ...]]:
    """Two steps that can be undone, then a failure; only these were undone, in this order."""
    both = [LeafId("a#1"), LeafId("b#1")]
    started = tuple(e.StepStarted(leaf=leaf, name="book", compensate="undo") for leaf in both)
    undone = [(e.CompensationStarted(leaf=LeafId(leaf)), e.CompensationCompleted(leaf=LeafId(leaf))) for leaf in leaves]
    failed = e.WorkflowFailed(error=e.ErrorInfo(type="Flaky", message="oh"))
    return [*COMMITS[:3], started, tuple(e.StepCompleted(leaf=leaf) for leaf in both), *undone, (failed,)]


def _older_pause() -> tuple[e.Body, ...]:
    return (e.Paused(reason="user", message=1),)


def _paused(reason: str) -> list[tuple[e.Body, ...]]:
    return [*COMMITS[:3], (e.Paused(reason=reason, detail="the code asked for something else"),)]


BREAKS: list[tuple[str, Callable[[], Evidence]]] = [
    ("numbers without gaps", lambda: _without(4)),
    ("a sound log", lambda: sound([*COMMITS, (e.StepCompleted(leaf=STEP),)])),
    ("one writer at a time", lambda: sound(writers={"c1": "w1", "c2": "w1", "c3": "w2", "c4": "w1"})),
    ("one writer at a time", lambda: sound(writers={"c1": "w1", "c2": "w1", "c3": "w2"})),
    ("no acknowledged commit is lost", lambda: sound(commits=[Acknowledged(RUN, "other", 4, 5, "w1")])),
    ("no acknowledged commit is lost", lambda: sound(commits=[Acknowledged(RUN, "c9", 9, 9, "w1")])),
    ("no acknowledged start is lost", lambda: _unborn()),
    ("no acknowledged message is lost", lambda: sound(inbox=[])),
    ("no acknowledged message is lost", lambda: sound(sends=[Sent(RUN, 1, "d2", "signal")])),
    ("no acknowledged message is lost", lambda: sound(inbox=[SIGNAL, msgspec.structs.replace(SIGNAL, number=2)])),
    (
        "messages are consumed once",
        lambda: sound([*COMMITS[:3], (e.MessageRefused(message=1, reason="?"),), COMMITS[3]]),
    ),
    ("messages are consumed once", lambda: sound([*COMMITS[:3], (e.MessageRefused(message=7, reason="?"),)])),
    (
        "requests count in their order",
        lambda: sound([*COMMITS[:3], (e.Paused(reason="user", message=2), e.Resumed(message=3)), _older_pause()]),
    ),
    ("runs end or wait for something real", lambda: sound(COMMITS[:3])),
    ("runs end or wait for something real", lambda: sound(COMMITS[:1], inbox=[])),
    ("keys are stable", _other_key),
    ("completed steps did run", lambda: sound(bodies=[])),
    ("code and log agree", lambda: sound(_paused("nondeterminism"))),
    ("the document is the folded log", lambda: sound(document=document(fold(RunId(RUN), _log(*COMMITS[:2]))))),
    ("children are what their parent was told", lambda: sound([*COMMITS[:3], *_child("completed")])),
    ("children are what their parent was told", lambda: sound([*COMMITS[:3], *_child("failed")], ends={"c": DONE})),
    ("effects are undone in reverse", lambda: sound(_undone())),
    ("effects are undone in reverse", lambda: sound(_undone("a#1", "b#1"))),
    ("the result is the expected one", lambda: sound(program=Node("step", "n1"))),
    ("the result is the expected one", lambda: sound(program=Node("step", "n1", fails=9, catch=False))),
]


def _unborn() -> Evidence:
    evidence = sound()
    evidence.log, evidence.document = [], None
    return evidence


@pytest.mark.parametrize(("rule", "evidence"), BREAKS, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(BREAKS)])
def test_every_invariant_can_fail(rule: str, evidence: Callable[[], Evidence]) -> None:
    assert rule in {violation.rule for violation in broken(evidence())}


def test_every_invariant_was_shown_able_to_fail() -> None:
    assert {rule for rule, _ in BREAKS} == set(CHECKS)


def test_a_run_that_kept_every_promise_breaks_none() -> None:
    assert broken(sound()) == []


def test_a_run_may_wait_for_a_signal_that_nobody_sent() -> None:
    waiting = sound(COMMITS[:3], inbox=[], sends=[])
    assert broken(waiting) == []


def test_a_parent_that_was_told_the_truth_breaks_no_promise() -> None:
    told = "children are what their parent was told"
    finished = [*COMMITS[:3], *_child("cancelled")]
    assert told not in {each.rule for each in broken(sound(finished, ends={"c": e.WorkflowCancelled()}))}


def test_undoing_the_last_effect_first_breaks_no_promise() -> None:
    assert "effects are undone in reverse" not in {each.rule for each in broken(sound(_undone("b#1", "a#1")))}


def test_a_paused_run_may_leave_signals_for_later() -> None:
    assert broken(sound(_paused("user"))) == []
