"""Facts in, words out: for every status and every health."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from buoy.core.diagnosis.facts import Facts, FailedLeaf, Milestones, ProgressFacts, RunnerFacts, milestones_of
from buoy.core.diagnosis.health import Health
from buoy.core.explain.explain import Explanation, explain
from buoy.core.explain.phrases import Wording
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.document import OpenLeaf
from buoy.core.log.lifecycle import Status
from buoy.core.log.pause import Pause
from buoy.core.log.questions import Question

from .test_health import ABLE, LOCK_FREE, NOW, RETRY, STEP, doc, runner

WORDS = Wording(when=lambda at: f"t{at:g}")
CONFIRM = OpenLeaf(
    leaf=LeafId("ask#1"), kind="ask", name="Ship it?", since=NOW - 60, question_id="r/ask#1/0",
    question=Question("Ship it?", "confirm"),
)  # fmt: skip
CHOOSE = OpenLeaf(
    leaf=LeafId("ask#2"), kind="ask", name="Which?", since=NOW - 60, question_id="r/ask#2/0",
    question=Question("Which?", "choose", ("dark red", "blue")),
)  # fmt: skip
SIGNAL = OpenLeaf(leaf=LeafId("signal:packed#1"), kind="signal", name="packed", since=NOW - 60, due_at=NOW + 3600)
TIMER = OpenLeaf(leaf=LeafId("sleep#1"), kind="timer", name="timer", since=NOW - 60, due_at=NOW + 120)


def facts(status: Status, *open: OpenLeaf, **more: Any) -> Facts:
    of_document = {
        name: more.pop(name) for name in ("pause", "error", "wake_at", "completed_count", "moved_to") if name in more
    }
    return Facts(document=doc(status, *open, **of_document), now=NOW, **more)


TABLE: list[tuple[str, Facts, list[str]]] = [
    (
        "running in an allocation of Slurm, elsewhere",
        facts(Status.RUNNING, STEP, holder=runner(beat_age_s=None, pid=7, host="n1", allocation="41")),
        ["If process 7 on n1 lives:", "it is in job 41 of Slurm", "`buoy sync-status r` declare the runner dead",
         "or ask Slurm whether its allocation has ended: buoy sync-status r"],
    ),
    (
        "pending, with allocations that are queued",
        facts(Status.PENDING, due_at=NOW, allocations=2),
        ["r waits for Slurm to start its first runner.", "It has 2 allocations that, by its log and its inbox,",
         "compare them with Slurm: buoy sync-status r"],
    ),
    (
        "pending, with a worker",
        facts(Status.PENDING, due_at=NOW, runners=ABLE),
        ["r is queued and has not begun.", "queue 'default' for a worker that knows 'order', since t9900 (1 min ago)",
         "A live worker takes it in its turn.", "cancel it: buoy cancel r"],
    ),
    (
        "pending, no worker",
        facts(Status.PENDING, due_at=NOW),
        ["r is queued and has not begun, but no live worker can run it.", "no worker is alive",
         "start a worker with the file that has workflow 'order': buoy worker FILE.py"],
    ),
    (
        "pending, no worker with its code",
        facts(Status.PENDING, due_at=NOW, runners=(runner(workflows={}),)),
        ["no live worker knows workflow 'order'"],
    ),
    (
        "running",
        facts(Status.RUNNING, STEP, holder=runner(), progress=ProgressFacts(NOW - 2, 3, 10, "files", "pack#1")),
        ["r is running step pack (attempt 1).", "since t9970 (30 s ago)", "progress: 3 of 10 (30%), files 2 s ago",
         "driven by runner runner-1 (process 7 on h)", "pause it: buoy pause r", "cancel it: buoy cancel r"],
    ),
    (
        "running, and a question is open",
        facts(Status.RUNNING, STEP, CONFIRM, holder=runner()),
        ["r is running step pack", "answer 'Ship it?': buoy answer r yes"],
    ),
    ("running its own code", facts(Status.RUNNING, holder=runner()), ["r is running its own code."]),
    (
        "retrying",
        facts(Status.WAITING, RETRY, wake_at=NOW + 60, due_at=NOW + 60, runners=ABLE),
        ["r waits for the next attempt of step pack: attempt 1 failed.", "failed with ValueError: no",
         "attempt 2 at t10060 (in 1 min)", "It continues by itself at t10060 (in 1 min)."],
    ),
    (
        "asks one question",
        facts(Status.AWAITING_INPUT, CONFIRM),
        ["r waits for an answer: Ship it?", "id r/ask#1/0", "expects yes or no", "buoy answer r yes",
         "it would then stay queued: no worker is alive"],
    ),
    (
        "asks two questions",
        facts(Status.AWAITING_INPUT, CONFIRM, CHOOSE, runners=ABLE),
        ["r waits for 2 answers", "buoy answer r yes --question 'r/ask#1/0'",
         "buoy answer r 'dark red' --question 'r/ask#2/0'", "expects one of dark red, blue"],
    ),
    (
        "waits for a signal",
        facts(Status.WAITING_SIGNAL, SIGNAL, due_at=NOW + 3600, wake_at=NOW + 3600),
        ["r waits for signal 'packed'.", "until t13600 (in 1 h)", "the wait times out t13600 (in 1 h)",
         "send it: buoy signal r packed"],
    ),
    (
        "sleeps",
        facts(Status.WAITING, TIMER, wake_at=NOW + 120, due_at=NOW + 120, runners=ABLE),
        ["r sleeps until t10120 (in 2 min).", "It continues by itself"],
    ),
    (
        "paused by a person",
        facts(Status.PAUSED, pause=Pause("user", "lunch", NOW - 60, "ann")),
        ["r is paused: a person or a program asked for it.", "Paused by ann t9940 (1 min ago). Reason: lunch.",
         "continue it: buoy resume r"],
    ),
    (
        "paused, its code has changed",
        facts(Status.PAUSED, pause=Pause("version", "the log has a#1, but the code asked for b#1 instead", NOW)),
        ["the code of the workflow has changed", "the log has a#1, but the code asked for b#1 instead"],
    ),
    (
        "paused, its code is not deterministic",
        facts(Status.PAUSED, pause=Pause("nondeterminism", "event 7 is the outcome of a#1", NOW)),
        ["its code did something else than its log says", "event 7 is the outcome of a#1", "correct the code"],
    ),
    (
        "paused as poison",
        facts(Status.PAUSED, pause=Pause("poison", "step pack, signal 9", NOW)),
        ["the processes that drove it ended again and again", "step pack, signal 9", "killed from outside"],
    ),
    (
        "interrupted",
        facts(
            Status.INTERRUPTED, due_at=NOW, runners=ABLE,
            milestones=Milestones(
                interrupted=e.Interrupted(signal="SIGTERM", runner="runner-0"), interrupted_at=NOW - 60
            ),
        ),
        ["r was interrupted and is queued to continue.",
         "by runner runner-0, which stopped on SIGTERM, t9940 (1 min ago)",
         "A live worker takes it in its turn."],
    ),
    (
        "owner dead, a worker is there",
        facts(Status.RUNNING, STEP, holder=runner(proof=LOCK_FREE), runners=ABLE, completed_count=3),
        ["r was executing step pack (attempt 1) when the process that drove it ended.",
         "3 completed parts will not run again", "the lock that it held while it lived is free",
         "finds the dead process within a second, takes the run over and continues it"],
    ),
    (
        "owner dead, no worker",
        facts(Status.RUNNING, STEP, holder=runner(proof={"proof": "the host was rebooted"}), completed_count=1),
        ["1 completed part will not", "the machine has rebooted since", "Nothing until you start a worker",
         "buoy worker FILE.py", "or drive it in this terminal: buoy run FILE.py:order --id r"],
    ),
    (
        "owner silent",
        facts(Status.RUNNING, STEP, holder=runner(beat_age_s=300.0)),
        ["r may hang: the process that drives it has been silent for 5 min.", "a living process may be silent",
         "kill -9 7"],
    ),
    (
        "left behind and queued again",
        facts(Status.RUNNING, STEP, due_at=NOW, runners=ABLE),
        ["r was left behind and is queued to continue at step pack (attempt 1).", "takes it in turn"],
    ),
    ("nothing wakes it", facts(Status.RUNNING, STEP), ["r is running, and nothing will wake it."]),
    (
        "unreadable",
        facts(Status.RUNNING, unreadable="event 3 is missing"),
        ["is unknown", "event 3 is missing", "Buoy does not act on", "backup", "buoy doctor"],
    ),
    ("drifted", facts(Status.RUNNING, drift="its document says x"), ["disagrees with its log", "its document says x"]),
    ("completed", facts(Status.COMPLETED), ["r has completed.", "1 min after it was created", "buoy result r"]),
    (
        "failed",
        facts(
            Status.FAILED, error=e.ErrorInfo("ValueError", "no\nmore"),
            milestones=Milestones(failed=FailedLeaf(LeafId("pack#1"), 3, NOW)),
        ),
        ["r has failed: ValueError: no ...", "the step that failed last is pack#1, after 3 attempts"],
    ),
    (
        "cancelled",
        facts(
            Status.CANCELLED, error=e.ErrorInfo("Cancelled", "too late"),
            milestones=Milestones(cancel=e.CancelRequested(reason="too late", by="ann")),
        ),
        ["r was cancelled: too late", "ann asked for it."],
    ),
    ("moved", facts(Status.MOVED, moved_to="s3://b/p"), ["r has moved to another store: s3://b/p"]),
    ("compensating", facts(Status.COMPENSATING, holder=runner()), ["r is undoing what its completed steps did."]),
]  # fmt: skip


def text_of(found: Explanation) -> str:
    return "\n".join([found.headline, found.now, *found.wrong, *found.evidence, *found.next, *found.you_can])


@pytest.mark.parametrize(("given", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_facts_become_words(given: Facts, expected: list[str]) -> None:
    text = text_of(explain(given, WORDS))
    assert [part for part in expected if part not in text] == [], text
    assert "None" not in text


def test_every_status_and_every_health_has_words() -> None:
    explained = [explain(given) for _, given, _ in TABLE]
    assert {each.status for each in explained} == set(Status)
    assert {each.health for each in explained} == set(Health)
    assert all(each.headline and each.next and each.evidence for each in explained)


def test_a_store_that_was_named_is_named_in_every_command() -> None:
    for _, given, _ in TABLE:
        for line in explain(given, Wording(store="sqlite:///x y.db")).you_can:
            if "buoy " in line:
                assert line.endswith("--store 'sqlite:///x y.db'"), line


def test_only_troubles_are_called_wrong() -> None:
    calm = facts(Status.AWAITING_INPUT, CONFIRM, runners=ABLE), facts(Status.RUNNING, STEP, holder=runner())
    assert [explain(each).wrong for each in calm] == [(), ()]


def test_a_log_tells_who_claimed_interrupted_and_failed() -> None:
    bodies: list[e.Body] = [
        e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}")),
        e.Claimed(runner="a", cause="created"),
        e.StepFailed(leaf=LeafId("pack#1"), error=e.ErrorInfo("E", "m"), attempt=2),
        e.Interrupted(signal="SIGTERM", runner="a"),
        e.Claimed(runner="b", cause="taken_over"),
    ]
    told = milestones_of([e.Event(seq, float(seq), body) for seq, body in enumerate(bodies, 1)])
    assert (told.claimed and told.claimed.runner, told.claimed_at, told.takeovers) == ("b", 5.0, 1)
    assert (told.interrupted_at, told.failed) == (4.0, FailedLeaf(LeafId("pack#1"), 2, 3.0, e.ErrorInfo("E", "m")))


def test_an_unread_message_is_mentioned() -> None:
    given = facts(Status.AWAITING_INPUT, CONFIRM, unread=2, runners=ABLE)
    assert "2 messages not used yet; signals are kept" in text_of(explain(given))


def test_a_holder_that_the_store_does_not_know_is_not_called_dead() -> None:
    given = facts(Status.RUNNING, STEP, holder=RunnerFacts(id="lost", registered=False))
    text = text_of(explain(given))
    assert "r is held by lost, which this store does not know." in text
    assert "buoy recover r" in text and "is dead" not in text


def test_a_time_of_another_clock_is_not_said_to_be_past() -> None:
    words = Wording()
    assert "(1 h ahead of this clock)" in words.past(5000.0, 1400.0)
    assert "(0 s ago)" in words.past(1401.0, 1400.0)
    assert "(10 s ago)" in words.past(1390.0, 1400.0)
