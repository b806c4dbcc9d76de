"""The invariants about times, counts, order and families can fail, too; and what is right breaks none of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from simulator.births import asked_by_kin
from simulator.evidence import Asked, Evidence
from simulator.programs import Node
from simulator.rules import ALL_CHECKS, broken
from simulator.witness import BodyEvent

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.questions import Question
from buoy.core.log.state import HANDLERS, fold
from buoy.ports.records import Message
from tests.sim.test_invariants import BREAKS, COMMITS, RUN, SIGNAL, STEP, WAIT, sound

# The commits of `sound` are one second apart, the first at 101.
ERROR = e.ErrorInfo(type="Flaky", message="oh")
TIMER = LeafId("timer#1")
FAILED = e.WorkflowFailed(error=ERROR)


def _story(*commits: tuple[e.Body, ...], **changes: object) -> Evidence:
    """A run that began, and then this."""
    evidence = sound([*COMMITS[:1], *commits], **{"inbox": [], "sends": [], **changes})
    evidence.program = Node("seq", "main")
    return evidence


def _dated(evidence: Evidence, seq: int, at: float) -> Evidence:
    evidence.log[seq - 1] = msgspec.structs.replace(evidence.log[seq - 1], at=at)
    return evidence


def _far(evidence: Evidence) -> Evidence:
    """Its last event is dated by a clock that is an hour ahead."""
    return _dated(evidence, len(evidence.log), 3_700.0)


def _timer(fired_after: int, **changes: object) -> Evidence:
    """A timer that is due at 104, and fires so many seconds after its start at 102; in between there are refusals."""
    idle = [(e.MessageRefused(message=n, reason="?"),) for n in range(1, fired_after)]
    return _story((e.TimerStarted(leaf=TIMER, due_at=104.0),), *idle, (e.TimerFired(leaf=TIMER),), **changes)


def _attempts(*numbers: int, wait_s: float = 0.3) -> Evidence:
    """A step whose first attempt failed at 102, and which then made these attempts, a second apart."""
    retry = e.RetryScheduled(leaf=STEP, attempt=1, due_at=102.0 + wait_s, error=ERROR)
    return _story((retry,), *((e.StepStarted(leaf=STEP, name="work", attempt=n, key="k"),) for n in numbers))


def _ran(*attempts: int) -> Evidence:
    return _story(bodies=[BodyEvent(101.0, "start", RUN, STEP, number, "k", "w1") for number in attempts])


def _undone(*attempts: int) -> Evidence:
    """A step that is undone by these attempts, all of which fail."""
    return _story(
        *(
            (
                e.CompensationStarted(leaf=STEP, key="k/compensation", attempt=number),
                e.CompensationRetryScheduled(leaf=STEP, attempt=number, due_at=110.0, error=ERROR),
            )
            for number in attempts
        )
    )


def _tries(between: tuple[e.Body, ...] = (), **changes: object) -> Evidence:
    """Code of version 2 did not fit, twice, and that of version 3 in between."""
    refused, other = (e.Paused(reason="version", detail="it asks for b", tried_version=each) for each in "23")
    again = (e.Resumed(by="code", version="3"), other, e.Resumed(by="code", version="2"), refused)
    return _story((refused,), *([between] if between else []), again, deployed=True, **changes)


def _crash(*, solo: bool, **evidence: str) -> tuple[e.Body, ...]:
    about = {"proof": "lock free", **({"solo": True} if solo else {}), **evidence}
    return (e.Claimed(runner="w2", cause="taken_over", evidence=about),)


def _poison(*crashes: tuple[e.Body, ...]) -> Evidence:
    return _story(*crashes, (e.Paused(reason="poison", detail="it kills"),))


APART = [(e.Paused(reason="poison", detail="it kills"), e.Resumed())]
TWO, FIVE = [_crash(solo=False)] * 2, [_crash(solo=True)] * 5
LAST = _crash(solo=False)
# A sweep takes the third crash in, and the worker that it wakes drives alone.
NOTED = _crash(solo=False, finding="H1")
WOKEN = (e.Claimed(runner="w3", cause="resumed"),)
WOKEN_ALONE = (e.Claimed(runner="w3", cause="resumed", evidence={"solo": True}),)
DEADLY = (e.StepStarted(leaf=LeafId("deadly#1"), name="deadly"),)
CHILD = LeafId("sim_sync#1")


def _child(name: str = "run-1.c", *, detach: bool = False) -> e.ChildStarted:
    return e.ChildStarted(leaf=CHILD, child=RunId(name), workflow="sim_sync", input=msgspec.Raw(b"{}"), detach=detach)


def _back(*dropped: LeafId, kept: tuple[LeafId, ...] = (), cutoff: int = 2, cause: str = "jump") -> tuple[e.Body, ...]:
    jump = e.JumpRequested(to=dropped[0] if dropped else STEP, new_branch=BranchId(1), by="me")
    made = e.BranchCreated(
        branch=BranchId(1), parent=BranchId(0), cutoff_seq=cutoff, kept=kept, dropped=dropped, cause=cause
    )
    return (jump, made) if cause == "jump" else (made,)


def _asked(question: str) -> e.InteractionRequested:
    return e.InteractionRequested(leaf=LeafId("ask#1"), question_id=question, question=Question("?", "text"))


OTHER = LeafId("work#2")
DONE = e.StepCompleted(leaf=STEP)
OTHER_DONE = (e.StepStarted(leaf=OTHER, name="work"), e.StepCompleted(leaf=OTHER))
ENDED = e.ChildFinished(leaf=CHILD, child=RunId("run-1.c"), status="completed", message=1)
LATER = msgspec.structs.replace(SIGNAL, number=2, dedupe="d2")
REFUSED = (e.MessageRefused(message=1, reason="?"),)
SECOND = (e.SignalWaited(leaf=WAIT, name="go"), e.SignalReceived(leaf=WAIT, message=2, payload=msgspec.Raw(b"{}")))

MORE: list[tuple[str, Callable[[], Evidence]]] = [
    ("signals come in their order", lambda: _story(SECOND, inbox=[SIGNAL, LATER])),
    ("times never go back", lambda: _dated(sound(), 6, 101.5)),
    ("nothing fires before its time", lambda: _timer(1)),
    ("nothing fires before its time", lambda: _attempts(2, wait_s=4.0)),
    ("attempts wait their back-off", lambda: _attempts(2, wait_s=0.0)),
    ("attempts wait their back-off", lambda: _attempts(2, wait_s=0.6)),
    ("waits end in time", lambda: _timer(12, calm_at=100.0)),
    ("a run's time keeps the store's pace", lambda: _far(sound(lasted_s=60.0))),
    ("attempts are counted", lambda: _attempts(2, 3, 4)),
    ("attempts are counted", lambda: _attempts(3)),
    ("attempts are counted", lambda: _ran(2, 1)),
    ("attempts are counted", lambda: _undone(1, 1)),
    ("attempts are counted", lambda: _undone(2)),
    ("attempts are counted", lambda: _undone(1, 2, 3)),
    ("each version gets one try", _tries),
    ("each version gets one try", lambda: _tries(inbox=[_resume(999.0)], calm_at=100.0)),
    ("only what kills is set apart", lambda: _poison(*TWO, *FIVE[:4], LAST)),
    ("only what kills is set apart", lambda: _poison(*TWO, LAST, WOKEN_ALONE, *FIVE[:3], LAST)),
    ("only what kills is set apart", lambda: _poison(*TWO, *FIVE, (DONE,), LAST)),
    ("only what kills is set apart", lambda: _poison(FIVE[0], (DONE,), *TWO, *FIVE[:4], LAST)),
    ("only what kills is set apart", lambda: _poison(*TWO, *FIVE, LAST, *APART, *FIVE, LAST)),
    ("what kills is set apart", lambda: _story(DEADLY, *TWO, *FIVE, LAST, LAST)),
    ("what kills is set apart", lambda: _story(DEADLY, *TWO, NOTED, WOKEN, *FIVE, LAST, LAST)),
    ("what kills is set apart", lambda: _dies_and_begins_again(9)),
    ("what kills is set apart", lambda: _story(code_deaths=11)),
    ("branches keep what stands", lambda: _story((DONE,), (OTHER_DONE[0],), _back(STEP, kept=(OTHER,)))),
    ("children of ended runs are notified", lambda: _story((_child(),), (FAILED,), born=frozenset({"run-1.c"}))),
    (
        "children of ended runs are notified",
        lambda: _story((_child(),), (e.LeafCancelled(leaf=CHILD),), born=frozenset({"run-1.c"})),
    ),
    (
        "children of ended runs are notified",
        lambda: _story((_child(),), _back(CHILD), (e.WorkflowCompleted(),), born=frozenset({"run-1.c"})),
    ),
    ("what is called back is new", lambda: _story((_child(),), _back(CHILD), (_child(),))),
    ("what is called back is new", lambda: _story((_child(),), (_child("run-1.d"),))),
    ("what is called back is new", lambda: _story((_asked("q"),), _back(LeafId("ask#1")), (_asked("q"),))),
    ("one request goes back once", lambda: _story(_back(STEP), _back(STEP), backs={"me": 1})),
    ("branches keep what stands", lambda: _story((DONE,), _back(OTHER))),
    ("branches keep what stands", lambda: _story((DONE,), OTHER_DONE, _back(STEP, kept=(OTHER,)))),
    ("branches keep what stands", lambda: _story((DONE,), OTHER_DONE, _back(OTHER, STEP))),
    ("branches keep what stands", lambda: _story((DONE,), _back(cutoff=2, cause="recovery"))),
    ("what is refused has a reason", lambda: _story(REFUSED, inbox=[SIGNAL])),
    ("what is refused has a reason", lambda: _story((e.Paused(reason="user"),), REFUSED, inbox=[_resume()])),
    ("what is refused has a reason", lambda: _hidden_question("recovery")),
    ("attempts are counted", lambda: _story((e.StepFailed(leaf=STEP, error=ERROR, attempt=2),))),
    ("attempts are counted", lambda: _undone_for_good(1)),
    ("only what kills is set apart", lambda: _poison(*TWO, *FIVE, _crash(solo=False, orphan="lost"))),
    ("specs follow their graph", lambda: _graph("+a", "+b")),
    ("specs follow their graph", lambda: _graph("+a", "a", "+b", "b/n", "b/m", "b", "+c")),
    ("specs follow their graph", lambda: _graph("+a", "a", "+b", "b/m", end=e.WorkflowCompleted())),
    ("specs follow their graph", lambda: _graph("+a", "-a", end=FAILED)),
    ("recoveries are audited", lambda: _story(_crash(solo=False, finding="Q4"))),
    ("policies are obeyed", lambda: _taken_over("hold")),
    ("policies are obeyed", lambda: _taken_over("fail", (e.Paused(reason="user"),))),
    ("policies are for runs whose owner died", lambda: _taken_over("resume", meets=(HELD,))),
    ("policies are for runs whose owner died", lambda: _taken_over("hold", meets=(HELD,), cause="interrupted")),
    ("policies are for runs whose owner died", lambda: _taken_over("hold", meets=(HELD,), waits=True)),
    ("takeovers are called so", lambda: _taken_over("resume", cause="woken")),
    ("takeovers are called so", lambda: _taken_over("resume", cause="recovered", finding="H1")),
    ("only what executes is interrupted", lambda: _story((DONE, WAITED), (STOPPED,))),
    ("failures name their cause", lambda: _cleaned_up(e.StepFailed(leaf=OTHER, error=ERROR, attempt=3))),
    ("pauses end for a reason", lambda: _taken_back(pause=1, takes_back=2)),
    ("pauses end for a reason", lambda: _held_until(104.0)),
    ("what can be undone comes to its end", lambda: _given_up("undo")),
    ("a cancellation ends a pause", lambda: _story((e.Paused(reason="user"), e.CancelRequested()))),
    ("what was sent is what arrives", lambda: _story((WAITED, _got(b'{"value":"no"}')), inbox=[SIGNAL])),
    ("what was sent is what arrives", lambda: _story((e.Paused(reason="user", message=1),), inbox=[SIGNAL])),
    ("what was sent is what arrives", lambda: _chosen("blue")),
    ("what was sent is what arrives", lambda: _asked_to("resume", {"version": "2"}, e.Resumed(message=1))),
    ("what was sent is what arrives", lambda: _asked_to("pause", {"reason": "tea"}, PAUSED)),
    ("what was sent is what arrives", lambda: _asked_to("pause", {"hold_s": 5.0}, PAUSED)),
    ("attempts are counted", lambda: _story(_retry(STEP, HOPELESS))),
    ("attempts are counted", lambda: _story((e.StepFailed(leaf=STEP, error=NOT_AGAIN, attempt=1),))),
    ("parts end as what they began", lambda: _story((e.ModuleCompleted(leaf=STEP),))),
    ("parts end as what they began", lambda: _story((e.StepCompleted(leaf=STEP, attempt=2),))),
    ("steps give what they were asked for", lambda: _story(_call("n7"), _gave("n8"))),
    ("steps give what they were asked for", lambda: _story(_call("n7"), _retry(OTHER), _call("n8", attempt=2))),
    ("failures name their cause", lambda: _story(STEP_FAILED, (FAILED,))),
    ("failures name their cause", lambda: _story((e.WorkflowFailed(error=ERROR, cause_leaf=STEP),))),
    ("failures name their cause", lambda: _story((e.CancelRequested(reason="old"), e.WorkflowCancelled(reason="new")))),
    ("failures name their cause", lambda: _story((e.WorkflowFailed(error=e.ErrorInfo("CancelledError", "")),))),
    ("runs begin as asked", lambda: sound(asked=Asked("other", {}))),
    ("runs begin as asked", lambda: _begun_by("release-2")),
    ("undoing waits for nothing else", lambda: _undone_beside((e.TimerStarted(leaf=LeafId("timer#1"), due_at=200.0),))),
    ("questions are asked once", lambda: _answered_again(2)),
    ("runs begin as asked", lambda: sound(asked=asked_by_kin({"p": _log_of_parent()})[RUN])),
    ("code is bound before it moves a run", lambda: _by_release("release-2")),
    ("branches keep what stands", lambda: _called_back(keep=True)),
    ("branches keep what stands", lambda: _called_back(keep=False, kept=(LeafId("ask#1"),))),
]


@pytest.mark.parametrize(("rule", "evidence"), MORE, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(MORE)])
def test_every_invariant_can_fail(rule: str, evidence: Callable[[], Evidence]) -> None:
    assert rule in {violation.rule for violation in broken(evidence())}


def test_every_invariant_was_shown_able_to_fail() -> None:
    assert {rule for rule, _ in (*BREAKS, *MORE)} == set(ALL_CHECKS)


def _resume(sent_at: float = 102.5) -> Message:
    return Message(RunId(RUN), "resume", "r1", msgspec.Raw(b"{}"), sent_at=sent_at, number=1)


def _hidden_question(cause: str) -> Evidence:
    """A question that a branch hid, and whose answer was then refused."""
    answer = Message(RunId(RUN), "answer", "a1", msgspec.Raw(b'{"question_id":"q","answer":"yes"}'), number=1)
    return _story((_asked("q"),), _back(LeafId("ask#1"), cause=cause), REFUSED, inbox=[answer])


def _undone_for_good(attempts: int) -> Evidence:
    """A step whose undoing was given up after so many attempts."""
    bodies: list[e.Body] = []
    for number in range(1, attempts + 1):
        bodies.append(e.CompensationStarted(leaf=STEP, key="k/compensation", attempt=number))
        bodies.append(e.CompensationRetryScheduled(leaf=STEP, attempt=number, due_at=110.0, error=ERROR))
    return _story((*bodies[:-1], e.CompensationFailed(leaf=STEP, error=ERROR)))


def _graph(*moves: str, end: e.Body | None = None) -> Evidence:
    """A spec of `a`, `b` with modules `m` and `n`, which needs `a`, and `c`. A move begins, completes or fails one."""
    bodies: list[e.Body] = []
    for move in moves:
        leaf = LeafId(f"{move.lstrip('+-')}#1")
        if "/" in move:
            step, _, module = move.partition("/")
            bodies += [e.ModuleStarted(leaf=leaf, step=step, module=module), e.ModuleCompleted(leaf=leaf)]
        elif move.startswith("+"):
            bodies.append(e.StepStarted(leaf=leaf, name=leaf))
        else:
            bodies.append(e.StepFailed(leaf=leaf, error=ERROR) if move.startswith("-") else e.StepCompleted(leaf=leaf))
    evidence = _story(*((body,) for body in (*bodies, *([] if end is None else [end]))))
    modules = (Node("call", "m"), Node("call", "n"))
    evidence.program = Node(
        "spec", "graph", (Node("call", "a"), Node("modules", "b", modules, name="a"), Node("call", "c"))
    )
    return evidence


def _dies_and_begins_again(times: int) -> Evidence:
    """A run whose policy is to restart, and whose step ends its process so many times."""
    commits: list[tuple[e.Body, ...]] = []
    for number in range(1, times + 1):
        made = e.BranchCreated(branch=BranchId(number), parent=BranchId(number - 1), cutoff_seq=0, cause="restart")
        commits += [DEADLY, (*_crash(solo=False), made)]
    return _story(*commits)


def _undone_beside(*open_now: tuple[e.Body, ...]) -> Evidence:
    """A completed step whose undoing begins while this is open."""
    return _story((DONE,), *open_now, (e.CompensationStarted(leaf=STEP, key="k/compensation", attempt=1),))


def _answered_again(message: int) -> Evidence:
    """A spec that begins again, and whose question gets its answer from that message."""
    answer = e.InteractionResponse(leaf=LeafId("ask#1"), question_id="q", answer=msgspec.Raw(b'"yes"'), message=1)
    again = msgspec.structs.replace(answer, message=message)
    evidence = _story((_asked("q"), answer), _back(cutoff=0, cause="restart"), (_asked("q"), again))
    evidence.program = Node("spec", "graph")
    body = msgspec.Raw(b'{"question_id":"q","answer":"yes"}')
    evidence.inbox = [Message(RunId(RUN), "answer", f"d{n}", body, number=n) for n in (1, 2)]
    return evidence


def _begun_by(version: str) -> Evidence:
    """A child that code of that version started, and that begins with the first release."""
    (created, *rest), *_ = COMMITS
    assert isinstance(created, e.WorkflowCreated)
    made = msgspec.structs.replace(created, version="release-1")
    asked = Asked(created.workflow, msgspec.json.decode(created.input), versions=(version,))
    return sound([(made,), tuple(rest)], inbox=[], sends=[], commits=[], asked=asked)


HELD = e.Paused(reason="hold", detail="its policy")


def _taken_over(
    policy: str, *more: tuple[e.Body, ...], meets: tuple[e.Body, ...] = (), cause: str = "taken_over",
    waits: bool = False, **evidence: str,
) -> Evidence:  # fmt: skip
    """A run of that policy whose owner died in the middle of its first step, or while it waited for a signal."""
    (created, *rest), *_ = COMMITS
    assert isinstance(created, e.WorkflowCreated)
    first = (msgspec.structs.replace(created, policy=policy), *rest)
    between = [(DONE, WAITED)] if waits else []
    claim = e.Claimed(runner="w2", cause=cause, evidence={"proof": "lock free", **evidence})
    return sound([first, *between, (claim, *meets), *more], inbox=[], sends=[])


STOPPED = e.Interrupted(signal="SIGTERM", runner="w1")


def _cleaned_up(end: e.Body) -> Evidence:
    """A run that is cancelled, and whose clean-up ends so."""
    ended = e.WorkflowCancelled(reason="old")
    evidence = _story((e.CancelRequested(reason="old"),), _call("e1-end"), (end,), (ended,))
    evidence.program = Node("seq", "main", (Node("cleanup", "e1", fails=3),))
    return evidence


PAUSED = e.Paused(reason="user", message=1)
RESUMED = e.Resumed(message=1, version="2")


def _asked_to(kind: str, body: dict[str, object], does: e.Body) -> Evidence:
    """A request with that body, and the event that it led to. A run that is to continue is paused before."""
    message = Message(RunId(RUN), kind, "r1", msgspec.Raw(msgspec.json.encode(body)), number=1)
    before = [(e.Paused(reason="user"),)] if kind == "resume" else []
    return _story(*before, (does,), inbox=[message])


def _taken_back(*, pause: int, takes_back: int) -> Evidence:
    """A pause that message 1 asked for, ended by a request to take back the pause of another one."""
    body = msgspec.Raw(msgspec.json.encode({"takes_back": takes_back}))
    resume = Message(RunId(RUN), "resume", "r3", body, number=3)
    return _story((e.Paused(reason="user", message=pause),), (e.Resumed(message=3),), inbox=[resume])


def _given_up(compensate: str | None) -> Evidence:
    """A step that the code gives up."""
    return _story((e.StepStarted(leaf=OTHER, name="work", compensate=compensate), e.LeafCancelled(leaf=OTHER)))


def _held_until(ends_at: float, *, clocks_set: bool = False) -> Evidence:
    """A pause that ended by itself at 103."""
    paused = e.Paused(reason="rewind", detail="to go back", expires_at=ends_at)
    return _story((paused,), (e.Resumed(by="the end of its pause"),), clocks_set=clocks_set)


WAITED = e.SignalWaited(leaf=WAIT, name="go")
STEP_FAILED = (e.StepFailed(leaf=STEP, error=ERROR, attempt=3),)


def _got(payload: bytes) -> e.SignalReceived:
    return e.SignalReceived(leaf=WAIT, message=1, payload=msgspec.Raw(payload))


def _chosen(answer: str) -> Evidence:
    """An answer to a question that offers red and green."""
    question = Question("?", "choose", options=("red", "green"))
    asked = e.InteractionRequested(leaf=LeafId("ask#1"), question_id="q", question=question)
    stored = msgspec.Raw(msgspec.json.encode(answer))
    given = e.InteractionResponse(leaf=LeafId("ask#1"), question_id="q", answer=stored, message=1, by="me")
    body = msgspec.Raw(msgspec.json.encode({"question_id": "q", "answer": answer}))
    return _story((asked,), (given,), inbox=[Message(RunId(RUN), "answer", "a1", body, number=1, by="me")])


def _call(id: str, attempt: int = 1) -> tuple[e.Body, ...]:
    """A step is called with that id."""
    args = msgspec.Raw(msgspec.json.encode({"id": id}))
    return (e.StepStarted(leaf=OTHER, name="work", attempt=attempt, args=args, key="k2"),)


def _gave(result: str) -> tuple[e.Body, ...]:
    return (e.StepCompleted(leaf=OTHER, result=msgspec.Raw(msgspec.json.encode(result))),)


def _retry(leaf: LeafId, error: e.ErrorInfo = ERROR) -> tuple[e.Body, ...]:
    return (e.RetryScheduled(leaf=leaf, attempt=1, due_at=103.3, error=error),)


# One that its step declares not to be tried again, and one that may pass and says that it may not.
HOPELESS = e.ErrorInfo(type="Hopeless", message="oh", retryable=False)
NOT_AGAIN = e.ErrorInfo(type="Flaky", message="oh", retryable=False)


def _log_of_parent() -> list[e.Event]:
    """The log of a run that started this one as its child."""
    created = e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}"))
    return [e.Event(1, 100.0, created), e.Event(2, 101.0, _child(RUN))]


def _called_back(*, keep: bool, kept: tuple[LeafId, ...] = ()) -> Evidence:
    """A person goes back to the first step, and said whether the answer to a question after it is to be kept."""
    answered = e.InteractionResponse(leaf=LeafId("ask#1"), question_id="q", answer=msgspec.Raw(b'"yes"'))
    dropped = (STEP,) if kept else (STEP, LeafId("ask#1"))
    return _story((DONE,), (_asked("q"),), (answered,), _back(*dropped, kept=kept), keeps={1: keep})


def _by_release(version: str, *bound: e.Body) -> Evidence:
    """A run of the first release, whose next step was begun by a worker that has this one."""
    created = sound().log[0].body
    assert isinstance(created, e.WorkflowCreated)
    runner = msgspec.structs.replace(sound().runners["w1"], workflows={created.workflow: (version,)})
    first = (msgspec.structs.replace(created, version="release-1"), *COMMITS[0][1:2])
    begins = e.StepStarted(leaf=OTHER, name="work")
    return sound([first, (begins, *bound)], inbox=[], sends=[], runners={"w1": runner})


RIGHT: list[tuple[str, Callable[[], Evidence]]] = [
    ("signals come in their order", lambda: _story((COMMITS[1][1], COMMITS[3][0]), inbox=[SIGNAL, LATER])),
    ("nothing fires before its time", lambda: _timer(2)),
    ("nothing fires before its time", lambda: _timer(1, clocks_set=True)),
    ("attempts wait their back-off", lambda: _attempts(2)),
    ("waits end in time", lambda: _timer(12)),
    ("waits end in time", lambda: _timer(12, calm_at=110.0)),
    ("waits end in time", lambda: _timer(4, calm_at=100.0)),
    ("attempts are counted", lambda: _attempts(2)),
    ("attempts are counted", lambda: _ran(1, 1, 2, 2)),
    ("attempts are counted", lambda: _undone(1, 2)),
    ("each version gets one try", lambda: _tries((e.VersionBound(version="3"),))),
    ("each version gets one try", lambda: _tries(inbox=[_resume()])),
    ("each version gets one try", lambda: _tries(inbox=[_resume(999.0)])),
    ("undoing waits for nothing else", lambda: _undone_beside()),
    ("questions are asked once", lambda: _answered_again(1)),
    ("runs begin as asked", lambda: _begun_by("release-1")),
    ("only what kills is set apart", lambda: _poison(*TWO, *FIVE, LAST)),
    ("only what kills is set apart", lambda: _poison(*TWO, LAST, WOKEN_ALONE, *FIVE[:4], LAST)),
    ("only what kills is set apart", lambda: _poison(*TWO, *FIVE, (e.Paused(reason="user"), e.Resumed()), LAST)),
    ("what kills is set apart", lambda: _story(DEADLY, *TWO, *FIVE, LAST)),
    ("what kills is set apart", lambda: _story(DEADLY, *TWO, NOTED, *FIVE, LAST)),
    ("what kills is set apart", lambda: _dies_and_begins_again(8)),
    ("what kills is set apart", lambda: _story(code_deaths=9)),
    ("what kills is set apart", lambda: _story(DEADLY, *TWO, *FIVE, *[_crash(solo=False, orphan="lost")] * 3)),
    (
        "children of ended runs are notified",
        lambda: _story((_child(),), (FAILED,), born=frozenset({"run-1.c"}), told=frozenset({"run-1.c"})),
    ),
    (
        "children of ended runs are notified",
        lambda: _story((_child(),), (ENDED,), (FAILED,), born=frozenset({"run-1.c"})),
    ),
    (
        "children of ended runs are notified",
        lambda: _story((_child(detach=True),), (FAILED,), born=frozenset({"run-1.c"})),
    ),
    (
        "children of ended runs are notified",
        lambda: _story((_child(),), (FAILED,), born=frozenset({"run-1.c"}), buried=frozenset({"run-1.c"})),
    ),
    (
        "children of ended runs are notified",
        lambda: _story((_child(),), (ENDED,), _back(CHILD), (FAILED,), born=frozenset({"run-1.c"})),
    ),
    (
        "children of ended runs are notified",
        lambda: _story((_child(),), _back(cause="recovery"), (_child(),), (ENDED,), born=frozenset({"run-1.c"})),
    ),
    ("what is called back is new", lambda: _story((_child(),), _back(CHILD), (_child("run-1.d"),))),
    ("one request goes back once", lambda: _story(_back(STEP), _back(STEP), backs={"me": 2})),
    ("branches keep what stands", lambda: _story((DONE,), OTHER_DONE, _back(STEP, OTHER))),
    ("branches keep what stands", lambda: _story((DONE,), OTHER_DONE, _back(OTHER, cutoff=4))),
    ("what is refused has a reason", lambda: _story(REFUSED, inbox=[_resume()])),
    ("what is refused has a reason", lambda: _hidden_question("jump")),
    ("attempts are counted", lambda: _story((e.StepFailed(leaf=STEP, error=ERROR, attempt=3),))),
    ("attempts are counted", lambda: _undone_for_good(2)),
    ("recoveries are audited", lambda: _story(_crash(solo=False, finding="H1"))),
    ("policies are obeyed", lambda: _taken_over("resume")),
    ("policies are obeyed", lambda: _taken_over("hold", meets=(e.Paused(reason="hold", detail="its policy"),))),
    ("policies are obeyed", lambda: _taken_over("fail", meets=(FAILED,))),
    ("policies are for runs whose owner died", lambda: _taken_over("hold", meets=(HELD,))),
    ("policies are for runs whose owner died", lambda: _taken_over("hold", waits=True)),
    ("what was sent is what arrives", lambda: _asked_to("resume", {"version": "2"}, RESUMED)),
    ("what was sent is what arrives", lambda: _asked_to("pause", {}, PAUSED)),
    ("attempts are counted", lambda: _story((e.StepFailed(leaf=STEP, error=HOPELESS, attempt=1),))),
    ("takeovers are called so", lambda: _taken_over("resume")),
    ("takeovers are called so", lambda: _taken_over("resume", cause="woken", waits=True)),
    ("takeovers are called so", lambda: _story((STOPPED,), (e.Claimed(runner="w2", cause="interrupted"),))),
    ("takeovers are called so", lambda: _story(_crash(solo=False, finding="H1"), WOKEN_ALONE)),
    ("only what executes is interrupted", lambda: _story((STOPPED,))),
    ("failures name their cause", lambda: _cleaned_up(e.StepCompleted(leaf=OTHER))),
    (
        "specs follow their graph",
        lambda: _graph("+a", "a", "+c", "+b", "b/m", "b/n", "b", "c", end=e.WorkflowCompleted()),
    ),
    ("specs follow their graph", lambda: _graph("+a", "-a", "+c", "c", end=FAILED)),
    ("pauses end for a reason", lambda: _taken_back(pause=1, takes_back=1)),
    ("pauses end for a reason", lambda: _held_until(102.5)),
    ("what can be undone comes to its end", lambda: _given_up(None)),
    ("pauses end for a reason", lambda: _held_until(104.0, clocks_set=True)),
    ("a cancellation ends a pause", lambda: _story((e.Paused(reason="user"), e.Resumed(), e.CancelRequested()))),
    (
        "a cancellation ends a pause",
        lambda: _story((e.Paused(reason="user"), e.CancelRequested(), e.WorkflowCancelled())),
    ),
    ("what was sent is what arrives", lambda: _story((WAITED, _got(b'{"value":"go"}')), inbox=[SIGNAL])),
    ("what was sent is what arrives", lambda: _chosen("red")),
    ("parts end as what they began", lambda: _attempts(2)),
    ("steps give what they were asked for", lambda: _story(_call("n7"), _retry(OTHER), _call("n7", attempt=2))),
    ("steps give what they were asked for", lambda: _story(_call("n7"), _gave("n7"))),
    ("failures name their cause", lambda: _story(STEP_FAILED, (e.WorkflowFailed(error=ERROR, cause_leaf=STEP),))),
    ("failures name their cause", lambda: _story((FAILED,))),
    ("code is bound before it moves a run", lambda: _by_release("release-1")),
    ("branches keep what stands", lambda: _called_back(keep=False)),
    ("branches keep what stands", lambda: _called_back(keep=True, kept=(LeafId("ask#1"),))),
    ("code is bound before it moves a run", lambda: _by_release("release-2", e.VersionBound(version="release-2"))),
]


@pytest.mark.parametrize(("rule", "evidence"), RIGHT, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(RIGHT)])
def test_what_is_right_breaks_no_promise(rule: str, evidence: Callable[[], Evidence]) -> None:
    assert rule not in {violation.rule for violation in broken(evidence())}


def test_a_fold_that_is_wrong_everywhere_in_the_same_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document and the fold agree then, and only another way of reading tells."""
    rule = "the document is the folded log"
    assert rule not in {each.rule for each in broken(_timer(2))}
    monkeypatch.setitem(HANDLERS, e.TimerFired, lambda state, event, body: None)
    wrong = _timer(2)
    wrong.document = document(fold(RunId(RUN), wrong.log))
    texts = [each.text for each in broken(wrong) if each.rule == rule]
    assert f"{RUN}: the document says open_count 2, the log amounts to 1" in texts
