"""Facts in, findings out: owners that stand still, steps that take long, code that waits for nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.facts import Facts, LoopFacts, MessageFacts, ProgressFacts, milestones_of
from buoy.core.diagnosis.findings import Finding, first_notice, first_trouble
from buoy.core.diagnosis.health import Health, judge
from buoy.core.explain.explain import explain

from .cases import NOW, WORKER, codes, facts_of, finding
from .logbook import asked, awaited, claimed, completed, created, log, started, timer
from .test_explain import text_of

STEP_OPEN = log(created(), claimed("w1"), started("a#1"))
WAITS_FOR_NOTHING = log(created(), claimed("w1"), started("a#1"), completed("a#1"))


def notice(facts: Facts) -> Finding | None:
    return first_notice(diagnose(facts))


def test_a_long_step_under_a_living_owner_is_a_notice() -> None:
    given = facts_of(STEP_OPEN, holder=WORKER, stale_after_s=600.0)
    found = finding(given, "H3")
    assert (found.trouble, found.remedy, first_trouble([found])) == (False, "none", None)
    assert notice(given) == found and codes(given) == [] and judge(given).health is Health.LIVE
    assert notice(msgspec.structs.replace(given, progress=ProgressFacts(NOW - 5))) is None
    waiting = log(created(), claimed("w1"), asked("ask#1"))
    assert notice(facts_of(waiting, holder=WORKER, stale_after_s=600.0)) is None


@pytest.mark.parametrize(
    ("owner", "more", "sign", "words"),
    [
        ({"stopped": True}, {}, "stopped", ["is stopped", "kill -CONT 7", "kill -9 7"]),
        (
            {"loop": LoopFacts(38.0, "other", "blocking#1")},
            {},
            "loop",
            [
                "its worker is blocked. Step blocking#1 of run other has held the event loop for 38 s",
                "asyncio.to_thread",
            ],
        ),
        ({"beat_age_s": 130.0}, {}, "silent", ["silent for 2 min", "kill -CONT 7"]),
        ({"beat_age_s": None, "suspected": True}, {}, "noted", ["no heartbeat since another machine looked at it"]),
        ({}, {"wake_at": NOW - 41.0}, "overdue", ["was due 41 s ago", "does not react", "blocking call"]),
    ],
)
def test_an_owner_that_stands_still_is_a_trouble_and_only_told(owner: Any, more: Any, sign: str, words: Any) -> None:
    events = log(created(), claimed("w1"), timer("t#1", NOW + 50))
    given = facts_of(events, holder=msgspec.structs.replace(WORKER, **owner), milestones=milestones_of(events))
    given = msgspec.structs.replace(given, document=msgspec.structs.replace(given.document, **more))
    found = finding(given, "H3")
    assert (found.trouble, found.remedy, found.evidence["sign"]) == (True, "report", sign)
    assert judge(given).health is Health.SUSPECT
    text = text_of(explain(given))
    assert [each for each in words if each not in text] == [], text
    assert "It continues by itself" not in text


def test_a_note_of_a_sweeper_is_no_silence_where_the_age_of_the_heartbeat_is_known() -> None:
    noted = msgspec.structs.replace(WORKER, beat_age_s=6.0, suspected=True)
    given = facts_of(STEP_OPEN, holder=noted)
    assert (codes(given), judge(given).health) == ([], Health.LIVE)


def test_a_message_that_a_living_owner_does_not_read_shows_that_it_stands_still() -> None:
    events = log(created(), claimed("w1"), awaited("s#1"))
    for age_s, expected in ((5.0, []), (40.0, ["H3"])):
        sent = (MessageFacts(1, "signal", "packed", NOW - age_s),)
        assert codes(facts_of(events, holder=WORKER, messages=sent)) == expected
    unused = (MessageFacts(1, "signal", "other", NOW - 40.0),)
    assert codes(facts_of(events, holder=WORKER, messages=unused)) == []


def test_a_loop_that_was_held_for_a_moment_is_no_trouble() -> None:
    held = msgspec.structs.replace(WORKER, loop=LoopFacts(6.0, "run-1", "a#1"))
    assert codes(facts_of(STEP_OPEN, holder=held)) == []


def test_a_queued_run_names_what_keeps_the_only_worker_from_taking_it() -> None:
    queued = log(created())
    for owner in ({"stopped": True}, {"loop": LoopFacts(38.0, "other", "blocking#1")}):
        hindered = msgspec.structs.replace(WORKER, **owner)  # type: ignore[arg-type]
        given = facts_of(queued, due_at=NOW - 30, runners=(hindered,))
        assert (codes(given), judge(given).health) == (["Q5"], Health.STALLED)
        text = text_of(explain(given))
        assert "the worker that could take it does not react" in text
        assert "The worker that does not react takes it as soon as it does" in text
        assert ("continue the worker that is stopped: kill -CONT 7" in text) is ("stopped" in owner)
        able = msgspec.structs.replace(WORKER, id="w2")
        assert codes(msgspec.structs.replace(given, runners=(hindered, able))) == []


def test_code_that_waits_for_nothing_is_found_when_its_log_ends_with_an_outcome() -> None:
    given = facts_of(WAITS_FOR_NOTHING, holder=WORKER, milestones=milestones_of(WAITS_FOR_NOTHING))
    assert (codes(given), judge(given).health) == (["W1"], Health.STALLED)
    assert finding(given, "W1").remedy == "report"
    text = text_of(explain(given))
    assert "can never continue" in text and "W1 (waits for nothing)" in text and "buoy cancel run-1" in text
    assert "When the step ends" not in text


@pytest.mark.parametrize(
    "more",
    [
        {"now": WAITS_FOR_NOTHING[-1].at + 1},
        {"holder": msgspec.structs.replace(WORKER, id="w2")},
        {"messages": (MessageFacts(1, "cancel", "", NOW - 1),)},
    ],
    ids=["what it asks for may be on its way", "who holds it has not begun", "a request will wake it"],
)
def test_code_is_not_said_to_wait_for_nothing_while_it_may_move(more: Any) -> None:
    given = facts_of(WAITS_FOR_NOTHING, **{"holder": WORKER, "milestones": milestones_of(WAITS_FOR_NOTHING), **more})
    assert "W1" not in [each.code for each in diagnose(given)]


def test_after_a_claim_the_word_of_its_owner_makes_it_certain() -> None:
    events = log(created(), claimed("w1"))
    says = msgspec.structs.replace(WORKER, stuck=("run-1",), beat_age_s=1.0)
    given = facts_of(events, holder=says, milestones=milestones_of(events))
    assert (codes(given), judge(given).health) == (["W1"], Health.STALLED)
    assert "can never continue" in text_of(explain(given))
    for other in ({"stuck": ("run-2",)}, {"beat_age_s": None}, {"beat_age_s": 3600.0}):
        assert codes(
            facts_of(events, holder=msgspec.structs.replace(says, **other), milestones=milestones_of(events))
        ) != ["W1"]


def test_after_a_claim_code_may_still_compute_so_that_it_is_a_notice() -> None:
    events = log(created(), claimed("w1"))
    given = facts_of(events, holder=WORKER, milestones=milestones_of(events))
    found = notice(given)
    assert found is not None and (found.code, found.trouble) == ("W1", False) and codes(given) == []
    text = text_of(explain(given))
    assert "has asked for nothing" in text and "waits for ever" in text
    spec = log(created(workflow="spec:x", version="v"), claimed("w1"))
    assert notice(facts_of(spec, holder=WORKER, milestones=milestones_of(spec))) is None


def test_code_between_two_steps_is_not_said_to_be_in_one() -> None:
    events = log(created(), claimed("w1"))
    text = text_of(explain(facts_of(events, holder=WORKER, milestones=milestones_of(events), now=events[-1].at + 1)))
    assert "is running its own code" in text and "Its code decides what comes next" in text
    assert "When the step ends" not in text
