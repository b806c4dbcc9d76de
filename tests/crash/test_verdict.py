"""The verdicts can fail: for each promise a small story that breaks it, and the story without the lie that does not."""

from __future__ import annotations

import msgspec
import pytest

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e

from .harness import Seen
from .verdict import Story, broken

RUN = RunId("run")
ONE, TWO = LeafId("one#1"), LeafId("two#1")
PROOF: dict[str, str | int | float | bool | None] = {"proof": "lock free", "pid": 1}


def log(*bodies: e.Body, branch: int = 0) -> list[e.Event]:
    """One event each second, from 1 on, each a commit of its own."""
    found = []
    for seq, body in enumerate(bodies, 1):
        here = BranchId(branch if any(isinstance(each, e.BranchCreated) for each in bodies[:seq]) else 0)
        found.append(e.Event(seq, float(seq), body, here, nonce=f"n{seq}"))
    return found


def created(policy: str = "resume") -> e.WorkflowCreated:
    return e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}"), policy=policy)


def claimed(cause: str = "created", evidence: dict[str, str | int | float | bool | None] | None = None) -> e.Claimed:
    return e.Claimed(runner="r", cause=cause, evidence=evidence or {})


def started(leaf: LeafId) -> e.StepStarted:
    return e.StepStarted(leaf=leaf, name=leaf.partition("#")[0], key=f"run/{leaf}/0")


def done(leaf: LeafId) -> e.StepCompleted:
    return e.StepCompleted(leaf=leaf, result=msgspec.Raw(b"1"))


def ran(at: float, leaf: LeafId, pid: int = 1, key: str | None = None) -> Seen:
    return Seen(at, pid, RUN, leaf, 1, key or f"run/{leaf}/0", "start")


def noted(at: float, kind: str, value: str, pid: int = 1) -> Seen:
    return Seen(at, pid, RUN, kind, 0, value, "note")


END = e.WorkflowCompleted(result=msgspec.Raw(b"[1]"))
# Taken over in the middle of `two`, which then runs once more.
LIFE = log(
    created(), claimed(), started(ONE), done(ONE), started(TWO), claimed("taken_over", PROOF), done(TWO), END
)  # fmt: skip
SEEN = [ran(3.5, ONE), ran(5.5, TWO), ran(6.5, TWO, pid=2), noted(7.5, "commit", "7:2:n7", pid=2)]


def story(
    events: list[e.Event] = LIFE, seen: list[Seen] = SEEN, policy: str = "resume", *, slept: bool = False
) -> Story:
    asleep = {1: (5.6, 8.5)} if slept else {}
    return Story(RUN, policy, [1], events, frozenset({1}), seen, asleep)


def without(place: int, *instead: e.Body) -> list[e.Event]:
    bodies = [event.body for event in LIFE]
    return log(*bodies[:place], *instead, *bodies[place + 1 :])


RESTARTED = [
    created("restart"), claimed(), started(ONE), done(ONE), claimed("taken_over", PROOF),
    e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=0, cause="restart"),
    e.WorkflowRecovered(
        reason="dead", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=0, finding="H1", actor="r"
    ),
    started(ONE), done(ONE), END,
]  # fmt: skip


def test_a_true_story_breaks_no_promise() -> None:
    assert broken(story()) == []
    again = [ran(3.5, ONE), ran(8.5, ONE, pid=2)]
    assert broken(story(log(*RESTARTED, branch=1), again, policy="restart")) == []
    # Completed by others while it stood still in it.
    given_up = without(5, claimed("taken_over", {"proof": "silent", "pid": 1}))
    assert broken(story(given_up, [*SEEN, ran(8.6, TWO)], slept=True)) == []


@pytest.mark.parametrize(
    ("told", "rule"),
    [
        (story([], [noted(1, "started", "-")]), "lost: the run is not there"),
        (story(seen=[*SEEN, noted(9, "commit", "9:1:n9")]), "lost: the commit"),
        (story(seen=[*SEEN, noted(9, "commit", "7:1:other")]), "lost: the commit"),
        (story(seen=[*SEEN, noted(9, "signalled", "2")]), "lost: signal 2"),
        (story([*LIFE[:3], *LIFE[4:]]), "disorder: the log has the numbers"),
        (story(without(4, done(ONE))), "disorder"),
        (story(seen=[*SEEN, ran(4.5, ONE, pid=2)]), "repeated: one#1 was executed by 2 after"),
        (story(seen=[*SEEN, ran(7.5, ONE)], slept=True), "repeated: one#1 was executed by 1 after"),
        (story(seen=[*SEEN, ran(6.6, TWO, pid=3)]), "repeated: two#1 attempt 1 was executed 3 times"),
        (story(seen=[ran(2.5, ONE), *SEEN]), "repeated: one#1 was executed before"),
        (story(seen=[ran(3.5, ONE, key="run/one#1/1")]), "repeated: one#1 was executed with the key"),
        (story(without(7)), "unended: it is running"),
        (story(without(7, e.WorkflowCompleted(result=msgspec.Raw(b"[2]")))), "unended: it ended with [2]"),
        (story(without(7, e.Paused(reason="hold"))), "unended: it is paused"),
        (story(without(5, claimed("taken_over"))), "unaudited: the claim at 6 has no proof"),
        (story(policy="restart"), "unaudited: after the claim at 6 the policy restart"),
        (story(policy="fail"), "unaudited: after the claim at 6 the policy fail"),
        (story(policy="hold"), "unaudited: after the claim at 6 the policy hold"),
        (
            story(log(*RESTARTED[:6], *RESTARTED[7:], branch=1), [ran(3.5, ONE), ran(7.5, ONE)], "restart"),
            "unaudited: nothing tells of branch 1",
        ),
        (story(seen=[*SEEN, noted(7.1, "commit", "7:1:n7")]), "not_fenced: 1 was given up at 6"),
        (story(slept=True), "not_fenced: 1 stood still"),
    ],
)
def test_a_story_that_breaks_a_promise_is_told_from_a_true_one(told: Story, rule: str) -> None:
    found = broken(told)
    assert any(text.startswith(rule) for text in found), found
