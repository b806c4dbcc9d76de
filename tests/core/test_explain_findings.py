"""Findings in words: what is wrong, on what evidence, what Buoy does and when, what a person can do."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.diagnosis.facts import Facts, MessageFacts, RunnerFacts, TaskFacts, milestones_of
from buoy.core.diagnosis.health import Health
from buoy.core.explain.explain import explain
from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status

from .cases import DEAD, NOW, WORKER, facts_of, failed_as, jumped, lying
from .logbook import (
    answered,
    asked,
    child,
    claimed,
    completed,
    created,
    log,
    started,
    timer,
)
from .test_explain import text_of

WORDS = Wording(store="sqlite:///x.db")
DUE = {"due_at": NOW, "task": TaskFacts("t", 1, "due")}
ANSWERED = log(created(), claimed(), asked("ask#1"), answered("ask#1"), started("a#1"))
BUSY = log(created(), claimed(), started("a#1"))
POISON = log(
    created(), claimed(), started("a#1"),
    *[e.Claimed(runner="w", cause="taken_over", evidence={"proof": "lock free", "solo": True}) for _ in range(7)],
)  # fmt: skip
TRACE = "Traceback (most recent call last):\n" + "\n".join(f'  File "f.py", line {n}' for n in range(9)) + "\nOdd: no"


def drifted(events: list[e.Event], claims: Status, **more: Any) -> Facts:
    return facts_of(events, claims=claims, drift="its document says it", **more)


TABLE: list[tuple[str, Facts, list[str]]] = [
    (
        "a document that waits for an unknown child",
        drifted(ANSWERED, Status.AWAITING_INPUT, **DUE),
        ["needs repair: status awaiting_input, but no question is open.",
         "A1 (answer not taken up): status awaiting_input but no pending interaction", "last stable event 4",
         "continues the run after its last recorded result or answer", "within 5 min",
         "do it now: buoy recover run-1 --store", "buoy recover run-1 --dry-run"],
    ),
    (
        "no worker to repair it",
        drifted(ANSWERED, Status.AWAITING_INPUT, runners=()),
        ["as soon as you start a worker or a sweeper; none is alive"],
    ),
    (
        "a pending question",
        drifted(log(created(), claimed(), asked("ask#1")), Status.RUNNING),
        ["A2 (question without an owner): status running but has pending interaction", "question q/ask#1",
         "buoy answer run-1 yes"],
    ),
    (
        "a failure without a remedy, with a policy",
        facts_of(log(created(policy="hold"), claimed(), started("a#1"),
                     failed_as("a#1", e.ErrorInfo(type="Odd", message="x")))),
        ["a#1 failed with an unknown error", "Its policy is hold: it is paused for a person."],
    ),
    ("a jump", facts_of(log(created(), claimed(), jumped("a#1", 1))), ["ask for the jump again: buoy jump run-1 STEP"]),
    (
        "a dead owner and a policy",
        facts_of(log(created(policy="restart"), claimed(), started("a#1")), holder=DEAD),
        ["does what its policy says", "Its policy is restart: it begins again from the start, on a new branch."],
    ),
    ("poison", facts_of(POISON, **DUE), ["P1 (poison): step a#1 ended the process", "lock free", "buoy release run-1"]),
    (
        "a timer that no worker saw",
        facts_of(log(created(), claimed(), timer("t#1", NOW - 60))),
        ["run-1 is waiting, and nothing will wake it.", "timer t#1 was due 1 min ago", "late 1 min"],
    ),
    ("no task", facts_of(BUSY, task=TaskFacts("t", 2, "missing")), ["it is active and has no task", "generation 2"]),
    (
        "a document that lies",
        facts_of(BUSY, stored=lying(BUSY, queue="x"), drift="its document says queue", **DUE),
        ["the document and the log disagree", "repair it now: buoy recover run-1", "rewrites the document from it.",
         "at once: buoy doctor --fix"],
    ),
    (
        "a document that lies, of a run that moved 2 min ago: sweeps compare runs that have not moved for 10 min",
        facts_of(BUSY, stored=lying(BUSY, queue="x"), drift="its document says queue", now=BUSY[-1].at + 120, **DUE),
        ["at a whole sweep of a live worker, within 13 min"],
    ),
    (
        "the same without a worker",
        facts_of(BUSY, stored=lying(BUSY, queue="x"), drift="its document says it", now=BUSY[-1].at + 120, runners=()),
        ["as soon as you start a worker or a sweeper and the run has not moved for 10 min; none is alive"],
    ),
    (
        "a document that is ahead of its log",
        facts_of(BUSY, stored=lying(BUSY, head_seq=8), drift="its document is at event 8", **DUE),
        ["R2 (wrong summary): its document is at event 8, its log ends at 3: events 4 to 8 may have been lost",
         "lost from 4, lost to 8",
         "Buoy first records in the log", "continues where its log ends", "buoy recover run-1"],
    ),
    (
        "an owner that lives and does not move",
        facts_of(BUSY, holder=WORKER, stale_after_s=60.0),
        ["run-1 is running step a", "may hang", "its worker is alive", "H3 (no progress), a notice", "kill -9 7",
         "same idempotency key"],
    ),
    (
        "an owner elsewhere that was looked at",
        facts_of(BUSY, holder=RunnerFacts(id="far", host="other", pid=3, suspected=True)),
        ["may hang: the process that drives it has been silent.", "no heartbeat since another machine looked at it"],
    ),
    (
        "a child in trouble",
        facts_of(log(created(), claimed(), child("c#1")), children={RunId("child-1"): "pending"},
                 child_troubles={RunId("child-1"): "stalled: no worker is alive"}),
        ["child child-1, which it waits for, is stalled: no worker is alive", "child child-1 is pending",
         "see why child child-1 does not continue: buoy why child-1"],
    ),
    (
        "a child that ended unheard",
        facts_of(log(created(), claimed(), child("c#1")), children={RunId("child-1"): "failed"}),
        ["child child-1 is failed, and its end was not delivered"],
    ),
    (
        "paused, asked to resume, and no worker",
        facts_of(log(created(), claimed(), e.Paused(reason="user")), messages=(MessageFacts(1, "resume"),), runners=(),
                 **DUE),
        ["no worker has read it: no worker is alive"],
    ),
    (
        "paused with an unread message and no worker",
        facts_of(log(created(), claimed(), e.Paused(reason="user")), messages=(MessageFacts(1, "signal", "x"),),
                 unread=1, runners=()),
        ["1 message not read yet; no worker is alive"],
    ),
    (
        "failed",
        facts_of(log(created(), claimed(), e.WorkflowFailed(error=e.ErrorInfo("Odd", "no", traceback=TRACE)))),
        ["buoy retry run-1 --store", "buoy retry run-1 --dry-run", "line 8", "Odd: no"],
    ),
    (
        "quarantined",
        facts_of(log(created(), claimed(), e.Paused(reason="poison", detail="P1: step a#1"))),
        ["continue it: buoy release run-1"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_findings_become_words(given: Facts, expected: list[str]) -> None:
    text = text_of(explain(given, WORDS))
    assert [part for part in expected if part not in text] == [], text
    assert "None" not in text


@pytest.mark.parametrize("given", [row[1] for row in TABLE], ids=[row[0] for row in TABLE])
def test_every_command_names_the_store(given: Facts) -> None:
    told = explain(given, WORDS)
    assert all("--store sqlite:///x.db" in line for line in told.you_can if ": buoy " in line)
    assert told.next
    assert told.evidence


def test_findings_are_handed_on_with_the_words() -> None:
    told = explain(drifted(ANSWERED, Status.AWAITING_INPUT, **DUE))
    assert (told.health, [each.code for each in told.findings if each.trouble]) == (Health.DRIFTED, ["A1"])


def test_a_run_that_is_well_has_nothing_wrong() -> None:
    for given in (facts_of(BUSY, holder=WORKER), facts_of(log(created(), claimed(), asked("ask#1")))):
        assert explain(given).wrong == ()


def test_only_the_last_lines_of_a_traceback_are_shown() -> None:
    text = text_of(explain(TABLE[-2][1]))
    assert "line 2" not in text


def test_a_story_of_a_recovery_is_told() -> None:
    done = log(created(), claimed(), started("a#1"), completed("a#1"))
    told = explain(facts_of(done, holder=WORKER, milestones=milestones_of(done)))
    assert told.wrong == ()


def test_the_catalogue_is_complete() -> None:
    expected = (
        "A1 A2 A3 A4 NS B1 B2 C1 C2 D1 D2 E1 E2 F1 F2 H1 H2 H3 Q1 Q2 Q3 Q4 Q5 Q6 P1 R1 R2 W1 J1 J2 J3 J4 J5 J6 J7"
    )
    assert sorted(CATALOGUE) == sorted(expected.split())
    assert [code for code, entry in CATALOGUE.items() if not entry.trouble] == [
        "B1",
        "B2",
        "C1",
        "C2",
        "D1",
        "F2",
        "J4",
    ]
