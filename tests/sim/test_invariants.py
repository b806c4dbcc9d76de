"""Every invariant can fail: a check that nothing can break says nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from simulator.evidence import Evidence, Reach
from simulator.programs import Node
from simulator.rules import broken
from simulator.witness import Acknowledged, BodyEvent, Sent, Touched

from buoy.core.ids import BranchId, LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.questions import Question
from buoy.core.log.state import fold
from buoy.ports.records import Message, RunnerInfo

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
    (e.Claimed(runner="w2", cause="taken_over", evidence={"proof": "lock free"}),),
    (
        e.SignalReceived(leaf=WAIT, message=1, payload=msgspec.Raw(b'{"value":"go"}')),
        e.WorkflowCompleted(result=msgspec.Raw(b'["n1","go"]')),
    ),
]
SIGNAL = Message(
    RunId(RUN), "signal", "d1", msgspec.Raw(b'{"name":"go","payload":{"value":"go"}}'), sent_at=101.0, number=1
)


def _runner(name: str, env: str | None = None, queues: tuple[str, ...] = ("default",)) -> RunnerInfo:
    return RunnerInfo(RunnerId(name), "h", "b", "n", 1, "1", name, env=env, queues=queues)


W1 = _runner("w1")


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
        runners={"w1": W1, "w2": _runner("w2")},
    )
    for name, value in changes.items():
        setattr(evidence, name, value)
    return evidence


def _body(**changes: object) -> BodyEvent:
    return msgspec.structs.replace(BodyEvent(102.0, "start", RUN, STEP, 1, "k", "w2"), **changes)


ASK = LeafId("ask#1")
ASKED = e.InteractionRequested(leaf=ASK, question_id="q", question=Question("?", "text"))
ANSWERED_TOO = e.InteractionResponse(leaf=ASK, question_id="q", answer=msgspec.Raw(b'"no"'), message=2)
ANSWERED_ELSEWHERE = e.InteractionResponse(
    leaf=LeafId("ask#2"), question_id="q", answer=msgspec.Raw(b'"yes"'), message=2
)
ANSWER = Message(RunId(RUN), "answer", "d2", msgspec.Raw(b'{"question_id":"q","answer":"yes"}'), number=2)
JUMP = e.JumpRequested(to=STEP, new_branch=BranchId(1))


def _answered(question: str) -> list[tuple[e.Body, ...]]:
    """A question and its answer, by a message that is about `q`."""
    asked = msgspec.structs.replace(ASKED, question_id=question)
    answer = e.InteractionResponse(leaf=ASK, question_id=question, answer=msgspec.Raw(b'"yes"'), message=2)
    return [*COMMITS[:3], (asked,), (answer,)]


def _signals(*senders: str) -> list[tuple[e.Body, ...]]:
    payloads = [msgspec.Raw(msgspec.json.encode({"value": "go", "by": by})) for by in senders]
    received = [e.SignalReceived(leaf=WAIT, message=n, payload=payload) for n, payload in enumerate(payloads, 1)]
    return [*COMMITS[:3], tuple(received)]


def _branch(
    cause: str, *, number: int = 1, kept: tuple[LeafId, ...] = (), dropped: tuple[LeafId, ...] = (STEP, WAIT)
) -> e.BranchCreated:
    return e.BranchCreated(
        branch=BranchId(number), parent=BranchId(0), cutoff_seq=0, kept=kept, dropped=dropped, cause=cause
    )


def _recovered(**changes: object) -> e.WorkflowRecovered:
    told = e.WorkflowRecovered(
        reason="H1: its runner is dead", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=0,
        finding="H1", evidence={"proof": "lock free"}, policy="restart", actor="w2",
    )  # fmt: skip
    return msgspec.structs.replace(told, **changes)


def _refused(policy: str, error: str) -> Evidence:
    """A run of that policy that failed with this error when it was taken over."""
    created = msgspec.structs.replace(CREATED, policy=policy)
    failed = e.WorkflowFailed(error=e.ErrorInfo(type=error, message="its policy is fail"))
    return sound([(created, *COMMITS[0][1:]), *COMMITS[1:3], (failed,)])


BACK = _branch("jump", dropped=(STEP, WAIT, ASK))


def _of_a_stack(**changes: object) -> Evidence:
    """A run of stack `north`."""
    created = msgspec.structs.replace(CREATED, stack="north")
    return sound([(created, *COMMITS[0][1:]), *COMMITS[1:]], **changes)


def _sent(by: str) -> Sent:
    return Sent(RUN, 1, "d1", "signal", by=by)


def _touched(by: str) -> Touched:
    return Touched(RUN, by, "made it due again")


def _foreign(**changes: object) -> Evidence:
    """A run that another system wrote, and that a process took in."""
    return sound(foreign=document(fold(RunId(RUN), _log(*COMMITS[:1]))), started=False, **changes)


def _left_alone(**changes: object) -> Evidence:
    """A run that another system wrote, and that no process took in."""
    evidence = _foreign()
    evidence.log, evidence.commits, evidence.bodies, evidence.sends, evidence.inbox = [], [], [], [], []
    evidence.document = evidence.foreign
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


def _ended_early() -> list[tuple[e.Body, ...]]:
    """A step that can be undone is under way when the run fails."""
    started = e.StepStarted(leaf=LeafId("a#1"), name="book", compensate="undo")
    return [*COMMITS[:3], (started,), (e.WorkflowFailed(error=e.ErrorInfo(type="Flaky", message="oh")),)]


def _not_undone(error: str, booked: str) -> list[tuple[e.Body, ...]]:
    """A step whose undoing failed so."""
    leaf, given = LeafId("a#1"), msgspec.Raw(msgspec.json.encode({"id": booked}))
    failed = e.CompensationFailed(leaf=leaf, error=e.ErrorInfo(type=error, message="oh"))
    began = e.StepStarted(leaf=leaf, name="book", args=given, compensate="undo")
    return [*COMMITS[:3], (began,), (e.StepCompleted(leaf=leaf), e.CompensationStarted(leaf=leaf)), (failed,)]


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
    ("keys tell effects apart", _other_key),
    ("keys tell effects apart", lambda: sound(bodies=[*sound().bodies, _body(redone=1)])),
    ("a log only grows", lambda: sound(earlier=_log(*COMMITS, (e.Resumed(),)))),
    ("a log only grows", lambda: sound(earlier=_log((CREATED, e.Claimed(runner="w9", cause="created"))))),
    ("signals have one effect", lambda: sound(_signals("s1", "s1"))),
    ("questions are asked once", lambda: sound(_answered("other"), inbox=[SIGNAL, ANSWER])),
    ("questions are asked once", lambda: sound([*_answered("q"), (ASKED,)], inbox=[SIGNAL, ANSWER])),
    ("questions are asked once", lambda: sound([*_answered("q"), (ANSWERED_TOO,)], inbox=[SIGNAL, ANSWER])),
    (
        "questions are asked once",
        lambda: sound([*COMMITS[:3], (ASKED,), (ANSWERED_ELSEWHERE,)], inbox=[SIGNAL, ANSWER]),
    ),
    ("questions are asked once", lambda: sound([*_answered("q"), (JUMP, BACK), (ASKED,)], inbox=[SIGNAL, ANSWER])),
    ("recoveries are audited", lambda: sound([*COMMITS[:2], (e.Claimed(runner="w2", cause="taken_over"),)])),
    ("recoveries are audited", lambda: sound([*COMMITS[:3], (_branch("recovery"),)])),
    ("recoveries are audited", lambda: sound([*COMMITS[:3], (JUMP, _branch("jump", number=2))])),
    ("recoveries are audited", lambda: sound([*COMMITS[:3], (_branch("recovery"), _recovered(evidence={}))])),
    ("recoveries are audited", lambda: sound([*COMMITS[:3], (_branch("recovery"), _recovered(actor=""))])),
    ("branches name what runs again", lambda: sound([*COMMITS[:3], (JUMP, _branch("jump", dropped=()))])),
    ("branches name what runs again", lambda: sound([*COMMITS[:3], (JUMP, _branch("jump", kept=(LeafId("x#1"),)))])),
    ("no process acts outside its scope", lambda: sound(runners={"w1": W1})),
    ("no process acts outside its scope", lambda: sound(scopes={"w2": Reach(env="lab")})),
    ("no process acts outside its scope", lambda: _of_a_stack(scopes={"w2": Reach("south")})),
    ("no process acts outside its scope", lambda: _of_a_stack(sends=[_sent("w9")], scopes={"w9": Reach("south")})),
    ("no process acts outside its scope", lambda: _of_a_stack(touches=[_touched("w9")], scopes={"w9": Reach("south")})),
    ("no process acts outside its scope", lambda: _foreign(scopes={"w1": Reach()})),
    ("no process acts outside its scope", lambda: _foreign(writers={})),
    ("no process acts outside its scope", lambda: _left_alone(document=None)),
    ("no process acts outside its scope", lambda: sound(runners={"w1": W1, "w2": _runner("w2", queues=("side",))})),
    ("only what ended is purged", lambda: sound(COMMITS[:3], purged=True)),
    ("completed steps did run", lambda: sound(bodies=[])),
    (
        "nothing moves in a pause",
        lambda: sound([*COMMITS[:3], (e.Paused(reason="user"), e.SignalWaited(leaf=LeafId("x#1"), name="x"))]),
    ),
    ("code and log agree", lambda: sound(_paused("nondeterminism"))),
    ("code and log agree", lambda: sound(_paused("poison"))),
    ("code and log agree", lambda: sound([*COMMITS[:3], (e.Paused(reason="version"),)], deployed=True)),
    ("the document is the folded log", lambda: sound(document=document(fold(RunId(RUN), _log(*COMMITS[:2]))))),
    ("parents record what became of their children", lambda: sound([*COMMITS[:3], *_child("completed")])),
    (
        "parents record what became of their children",
        lambda: sound([*COMMITS[:3], *_child("failed")], ends={"c": [DONE]}),
    ),
    ("effects are undone in reverse", lambda: sound(_undone())),
    ("effects are undone in reverse", lambda: sound(_undone("a#1", "b#1"))),
    ("effects are undone in reverse", lambda: sound(_ended_early())),
    ("only what raises fails", lambda: sound(_not_undone("BadInput", "hotel-x"))),
    ("only what raises fails", lambda: sound(_not_undone("Flaky", "hotel"))),
    ("the result is the expected one", lambda: sound(program=Node("step", "n1"))),
    ("the result is the expected one", lambda: _refused("resume", "RecoveryRefused")),
    ("the result is the expected one", lambda: _refused("fail", "Flaky")),
    ("the result is the expected one", lambda: sound(program=Node("step", "n1", fails=9, catch=False))),
]


def _unborn() -> Evidence:
    evidence = sound()
    evidence.log, evidence.document = [], None
    return evidence


@pytest.mark.parametrize(("rule", "evidence"), BREAKS, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(BREAKS)])
def test_every_invariant_can_fail(rule: str, evidence: Callable[[], Evidence]) -> None:
    assert rule in {violation.rule for violation in broken(evidence())}


def test_a_run_that_kept_every_promise_breaks_none() -> None:
    assert broken(sound()) == []


def test_a_run_may_wait_for_a_signal_that_nobody_sent() -> None:
    waiting = sound(COMMITS[:3], inbox=[], sends=[])
    assert broken(waiting) == []


def test_a_parent_that_was_told_the_truth_breaks_no_promise() -> None:
    told = "parents record what became of their children"
    finished = [*COMMITS[:3], *_child("cancelled")]
    assert told not in {each.rule for each in broken(sound(finished, ends={"c": [e.WorkflowCancelled()]}))}


def test_undoing_the_last_effect_first_breaks_no_promise() -> None:
    assert "effects are undone in reverse" not in {each.rule for each in broken(sound(_undone("b#1", "a#1")))}


def test_undoing_that_fails_as_its_body_does_breaks_no_promise() -> None:
    assert "only what raises fails" not in {each.rule for each in broken(sound(_not_undone("Flaky", "hotel-x")))}


def test_a_jump_that_says_what_it_hides_breaks_no_promise() -> None:
    rules = {each.rule for each in broken(sound([*COMMITS[:3], (JUMP, _branch("jump"))], inbox=[], sends=[]))}
    assert not rules & {"branches name what runs again", "recoveries are audited"}


def test_an_effect_that_was_called_back_may_have_a_new_key() -> None:
    again = _body(key="other", redone=1)
    assert broken(sound(bodies=[*sound().bodies, again])) == []


def test_a_run_that_was_purged_after_its_end_breaks_no_promise() -> None:
    assert broken(sound(purged=True, document=None)) == []


def test_a_spoiled_document_of_a_run_that_moved_on_is_no_excuse() -> None:
    old = document(fold(RunId(RUN), _log(*COMMITS[:2])))
    assert broken(sound(document=old, damaged_at=len(_log(*COMMITS)))) == []
    assert broken(sound(document=old, damaged_at=3)) != []


def test_a_paused_run_may_leave_signals_for_later() -> None:
    assert broken(sound(_paused("user"))) == []


def test_who_has_no_stack_may_act_for_all_and_a_person_may_do_as_he_likes() -> None:
    scopes = {"w1": Reach(), "w2": Reach("north")}
    assert broken(_of_a_stack(scopes=scopes, sends=[_sent("person-1")])) == []


def test_a_remedy_needs_no_queue_but_driving_does() -> None:
    rule = "no process acts outside its scope"
    runners = {"w1": W1, "w2": _runner("w2", queues=())}
    remedy = (e.Claimed(runner="w2", cause="taken_over", evidence={"finding": "H1"}),)
    assert rule not in {each.rule for each in broken(sound([*COMMITS[:2], remedy], runners=runners))}
    assert rule in {each.rule for each in broken(sound(runners=runners))}


def test_a_foreign_run_that_was_asked_for_or_left_alone_breaks_no_promise() -> None:
    assert broken(_foreign(scopes={"w1": Reach(adopt=True)})) == []
    assert broken(_left_alone()) == []


@pytest.mark.parametrize(("stack", "broke"), [("north", False), ("south", True)])
def test_a_schedule_is_fired_only_by_who_is_of_its_scope(stack: str, broke: bool) -> None:
    created = msgspec.structs.replace(CREATED, stack="north", by="schedule nightly")
    evidence = sound([(created,), COMMITS[0][1:], *COMMITS[1:]], scopes={"w9": Reach(stack)})
    evidence.writers = {"c1": "w9", "c2": "w1", "c3": "w1", "c4": "w2", "c5": "w2"}
    assert ("no process acts outside its scope" in {each.rule for each in broken(evidence)}) == broke


def test_a_renamed_step_keeps_its_key() -> None:
    rule = "keys tell effects apart"
    again = _body(leaf="labour#1")
    assert rule not in {each.rule for each in broken(sound(bodies=[*sound().bodies, again]))}
    other = msgspec.structs.replace(again, key="other")
    assert rule in {each.rule for each in broken(sound(bodies=[*sound().bodies, other]))}


def test_a_process_that_was_declared_gone_may_execute_what_a_person_has_called_back() -> None:
    old = _body(redone=1, gone=True)
    assert "keys tell effects apart" not in {each.rule for each in broken(sound(bodies=[*sound().bodies, old]))}


def test_a_run_may_fail_or_be_held_after_a_death_if_that_is_its_policy() -> None:
    assert broken(_refused("fail", "RecoveryRefused")) == []
    created = msgspec.structs.replace(CREATED, policy="hold")
    held = (e.Paused(reason="hold", detail="H1: its runner is dead"),)
    assert broken(sound([(created, *COMMITS[0][1:]), *COMMITS[1:3], held])) == []
    assert {each.rule for each in broken(sound([*COMMITS[:3], held]))} == {"code and log agree"}


def test_a_recovery_that_says_why_breaks_no_promise() -> None:
    told = broken(sound([*COMMITS[:3], (_branch("recovery"), _recovered())], inbox=[], sends=[]))
    assert "recoveries are audited" not in {each.rule for each in told}
