"""Facts in, verdict out."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.health import Health, judge
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.ids import LeafId, RunId
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.events import ErrorInfo
from buoy.core.log.lifecycle import Status

NOW = 10_000.0
STEP = OpenLeaf(leaf=LeafId("pack#1"), kind="step", name="pack", since=NOW - 30)
ASK = OpenLeaf(leaf=LeafId("ask#1"), kind="ask", name="Ship it?", since=NOW - 30, question_id="r/ask#1/0")
RETRY = OpenLeaf(
    leaf=LeafId("pack#1"), kind="step", name="pack", since=NOW - 30, retrying=True, due_at=NOW + 60,
    error=ErrorInfo("ValueError", "no"),
)  # fmt: skip


def doc(status: Status, *open: OpenLeaf, **more: Any) -> Document:
    return Document(
        run_id=RunId("r"), workflow="order", status=status, head_seq=5, created_at=NOW - 100, updated_at=NOW - 30,
        open=open, open_count=len(open), **more,
    )  # fmt: skip


def runner(**more: Any) -> RunnerFacts:
    facts = {"id": "runner-1", "host": "h", "pid": 7, "beat_age_s": 5.0, "workflows": {"order": ("v1",)}} | more
    return RunnerFacts(**facts)


LOCK_FREE = {"proof": "lock free"}
ABLE = (runner(),)

TABLE: list[tuple[str, Facts, Health, str]] = [
    (
        "held by the living",
        Facts(document=doc(Status.RUNNING, STEP), now=NOW, holder=runner()),
        Health.LIVE,
        "holds it",
    ),
    (
        "silent for two minutes, without proof",
        Facts(document=doc(Status.RUNNING, STEP), now=NOW, holder=runner(beat_age_s=121.0)),
        Health.SUSPECT,
        "nothing proves",
    ),
    (
        "silent for a year, without proof",
        Facts(document=doc(Status.RUNNING, STEP), now=NOW, holder=runner(beat_age_s=3e7)),
        Health.SUSPECT,
        "silent for 347 d",
    ),
    (
        "proven dead, a moment after its last beat",
        Facts(document=doc(Status.RUNNING, STEP), now=NOW, holder=runner(beat_age_s=0.1, proof=LOCK_FREE)),
        Health.DEAD,
        "is dead",
    ),
    (
        "declared gone",
        Facts(document=doc(Status.RUNNING, STEP), now=NOW, holder=runner(gone_why="lock free")),
        Health.DEAD,
        "is dead",
    ),
    (
        "held by an unknown runner",
        Facts(document=doc(Status.RUNNING, STEP), now=NOW, holder=RunnerFacts(id="x", registered=False)),
        Health.DEAD,
        "unknown to this store",
    ),
    (
        "waits for an answer, no runner holds it",
        Facts(document=doc(Status.AWAITING_INPUT, ASK), now=NOW),
        Health.IDLE,
        "a message will wake it",
    ),
    (
        "waits for an answer, held by the dead",
        Facts(document=doc(Status.AWAITING_INPUT, ASK), now=NOW, holder=runner(proof=LOCK_FREE)),
        Health.DEAD,
        "is dead",
    ),
    (
        "tried again later, no runner holds it or could",
        Facts(document=doc(Status.WAITING, RETRY, wake_at=NOW + 60), now=NOW, due_at=NOW + 60),
        Health.IDLE,
        "due in 1 min",
    ),
    (
        "waits for a time without a timer",
        Facts(document=doc(Status.WAITING, RETRY, wake_at=NOW + 60), now=NOW, runners=ABLE),
        Health.STALLED,
        "no time is set",
    ),
    (
        "queued, with a worker",
        Facts(document=doc(Status.PENDING), now=NOW, due_at=NOW, runners=ABLE),
        Health.IDLE,
        "can take it",
    ),
    (
        "queued, no worker",
        Facts(document=doc(Status.PENDING), now=NOW, due_at=NOW),
        Health.STALLED,
        "no worker is alive",
    ),
    (
        "queued, no worker with its code",
        Facts(document=doc(Status.PENDING), now=NOW, due_at=NOW - 60, runners=(runner(workflows={}),)),
        Health.STALLED,
        "due for 1 min, and no live worker knows workflow 'order'",
    ),
    (
        "queued, only a client is there",
        Facts(document=doc(Status.PENDING), now=NOW, due_at=NOW, runners=(runner(role="client"),)),
        Health.STALLED,
        "no worker is alive",
    ),
    (
        "running, parked for ever",
        Facts(document=doc(Status.RUNNING, STEP), now=NOW, runners=ABLE),
        Health.STALLED,
        "no runner holds it",
    ),
    ("paused, no worker", Facts(document=doc(Status.PAUSED), now=NOW), Health.IDLE, "paused"),
    (
        "paused, with a message and no worker to read it",
        Facts(document=doc(Status.PAUSED), now=NOW, due_at=NOW, unread=1),
        Health.STALLED,
        "no worker is alive",
    ),
    (
        "interrupted, with a worker",
        Facts(document=doc(Status.INTERRUPTED), now=NOW, due_at=NOW, runners=ABLE),
        Health.IDLE,
        "can take it",
    ),
    ("completed", Facts(document=doc(Status.COMPLETED), now=NOW), Health.IDLE, "completed"),
    ("failed", Facts(document=doc(Status.FAILED), now=NOW), Health.IDLE, "failed"),
    (
        "unreadable, though its holder is dead",
        Facts(document=doc(Status.RUNNING), now=NOW, holder=runner(proof=LOCK_FREE), unreadable="event 3 is missing"),
        Health.UNKNOWN,
        "event 3 is missing",
    ),
    (
        "drifted, though it lives",
        Facts(document=doc(Status.RUNNING), now=NOW, holder=runner(), drift="its document says running"),
        Health.DRIFTED,
        "its document says",
    ),
]


@pytest.mark.parametrize(("facts", "health", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_facts_amount_to_health(facts: Facts, health: Health, reason: str) -> None:
    verdict = judge(facts)
    assert (verdict.health, reason in "; ".join(verdict.reasons)) == (health, True), verdict


MISSING: list[tuple[str, Document, tuple[RunnerFacts, ...], str | None]] = [
    ("one can", doc(Status.PENDING), ABLE, None),
    ("nobody", doc(Status.PENDING), (), "no worker is alive"),
    ("only the dead", doc(Status.PENDING), (runner(proof=LOCK_FREE),), "no worker is alive"),
    ("workflow", doc(Status.PENDING), (runner(workflows={"other": ("v1",)}),), "knows workflow 'order'"),
    ("functions", doc(Status.PENDING), (runner(unable=("order",)),), "has the functions that 'order' calls"),
    ("one of two has them", doc(Status.PENDING), (runner(unable=("order",)), *ABLE), None),
    ("queue", doc(Status.PENDING, queue="slow"), ABLE, "serves queue 'slow'"),
    ("env", doc(Status.PENDING, env="test"), ABLE, "env 'test'"),
    ("stack", doc(Status.PENDING, stack="b"), (runner(stack="a"),), "stack 'b'"),
    ("a client that tends it", doc(Status.PENDING), (runner(role="client", queues=(), tends=("r",)),), None),
    ("a client of its own run", doc(Status.PENDING), (runner(role="client", tends=("s",)),), "no worker is alive"),
    (
        "a dead client",
        doc(Status.PENDING),
        (runner(role="client", tends=("r",), proof=LOCK_FREE),),
        "no worker is alive",
    ),
    ("any stack will do", doc(Status.PENDING, stack="b"), ABLE, None),
]


@pytest.mark.parametrize(("document", "runners", "text"), [row[1:] for row in MISSING], ids=[row[0] for row in MISSING])
def test_what_is_missing_is_named(document: Document, runners: tuple[RunnerFacts, ...], text: str | None) -> None:
    found = what_is_missing(document, runners)
    assert found is None if text is None else text in (found or "")
