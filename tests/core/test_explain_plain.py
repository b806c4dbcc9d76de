"""What strangers stumbled over: what stands un-undone, whose progress it is, who would take it, what was meant."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from buoy.core.diagnosis.facts import Facts, MessageFacts, Milestones, ProgressFacts, milestones_of
from buoy.core.explain.compensation import fate, standing
from buoy.core.explain.explain import explain
from buoy.core.explain.phrases import current_progress
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.core.log.pause import Pause

from .cases import DEAD, WORKER, facts_of
from .logbook import asked, branched, claimed, completed, created, failed, log, started
from .logbook import undoing as compensating
from .logbook import undone as compensated
from .test_explain import CONFIRM, SIGNAL, TIMER, facts, text_of
from .test_health import ABLE, LOCK_FREE, NOW, STEP, runner

BOOKED = (replace(started("book#1"), compensate="unbook"), completed("book#1"))
UNDER_WAY = (created(), claimed("w1"), *BOOKED, started("slow#1"))
GONE = runner(proof=LOCK_FREE)


def told(events: list[e.Event], **more: Any) -> str:
    return text_of(explain(facts_of(events, milestones=milestones_of(events), **more)))


def lost(policy: str, **more: Any) -> str:
    """A run whose process died in its second step."""
    events = log(replace(created(), policy=policy), *UNDER_WAY[1:])
    return told(events, holder=DEAD, runners=(), **more)


# ---- what is not undone


def test_a_step_stands_until_somebody_begins_to_undo_it() -> None:
    assert standing(log(*UNDER_WAY)) == {"book#1": "unbook"}
    assert standing(log(*UNDER_WAY, failed("slow#1"), compensating("book#1"))) == {}
    assert standing(log(*UNDER_WAY, branched(1, 2))) == {}, "a branch that hides it has it no more"
    assert standing(log(created(), started("plain#1"), completed("plain#1"))) == {}
    assert fate("fail", log(created())) is None and fate("resume", log(*UNDER_WAY)) is None


def test_a_lost_run_says_in_advance_what_its_policy_leaves_standing() -> None:
    failing = lost("fail")
    assert "Its policy is fail" in failing
    assert "Nothing is undone then. These completed steps keep their effects: book#1 (by unbook)." in failing
    assert "Nothing is undone first" in lost("restart") and "run a second time" in lost("restart")
    assert "book#1 (by" not in lost("resume") + lost("hold")


def test_a_run_that_its_policy_ended_says_what_nobody_undid() -> None:
    ended = e.WorkflowFailed(error=e.ErrorInfo("RecoveryRefused", "its policy is fail"))
    text = told(log(*UNDER_WAY, ended))
    assert "ran no compensations: book#1 (by unbook) completed and is not undone" in text
    assert "started, without an outcome: slow#1" in text and "undo by hand the effects of: book#1" in text
    undone = told(log(*UNDER_WAY, failed("slow#1"), compensating("book#1"), compensated("book#1"), ended))
    assert "no compensations" not in undone and "by hand" not in undone


def test_a_compensating_run_names_what_is_still_to_be_undone() -> None:
    more = (replace(started("pay#1"), compensate="refund"), completed("pay#1"))
    events = log(created(), claimed("w1"), *BOOKED, *more, started("x#1"), failed("x#1"), compensating("pay#1"))
    assert "After that, still to be undone: book#1 (by unbook)." in told(events, holder=WORKER)


# ---- left behind


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("resume", "put it into its queue now, for the next free worker: buoy resume run-1"),
        ("hold", "continue it anyway, if you judge that it is safe: buoy resume run-1"),
        ("restart", "do now what its policy says (restart): buoy recover run-1"),
        ("fail", "do now what its policy says (fail): buoy recover run-1"),
    ],
)
def test_a_lost_run_names_the_command_that_does_what_its_policy_allows(policy: str, expected: str) -> None:
    text = lost(policy)
    assert expected in text and "see first what that would do: buoy recover run-1 --dry-run" in text
    assert ("buoy resume" in text) == (policy in ("resume", "hold"))


def test_an_interrupted_run_names_resume_and_recover() -> None:
    events = log(*UNDER_WAY, e.Interrupted(signal="SIGTERM", runner="w1"))
    for runners in ((), (WORKER,)):
        text = told(events, runners=runners, due_at=NOW)
        assert "buoy resume run-1" in text and "buoy recover run-1 --dry-run" in text


def test_a_lost_run_that_waits_says_what_it_still_waits_for() -> None:
    text = text_of(explain(facts(Status.WAITING, TIMER, wake_at=NOW + 120, holder=GONE)))
    assert "It still waits: a timer since" in text and "(in 2 min)" in text
    assert "0 completed" not in text


def test_crashes_in_a_row_are_told_as_the_steps_own() -> None:
    again = e.Claimed(runner="w1", cause="taken_over", evidence={"proof": "lock free"})
    text = told(log(*UNDER_WAY, again, again), holder=DEAD, runners=())
    assert "that happened 3 times in a row: step slow#1 may crash the process" in text
    solo = replace(again, evidence={"proof": "lock free", "solo": True})
    alone = told(log(*UNDER_WAY, again, again, *[solo] * 5), holder=DEAD, runners=())
    assert "Buoy does not drive it again" in alone and "quarantine it now: buoy recover run-1" in alone


# ---- whose progress


def with_progress(leaf: str, at: float = NOW - 2, **more: Any) -> Facts:
    return facts(Status.RUNNING, STEP, holder=runner(), progress=ProgressFacts(at, 3, 10, "", leaf), **more)


def test_progress_of_a_step_that_ended_is_not_told_as_that_of_the_next() -> None:
    assert current_progress(with_progress("pack#1")) is not None
    assert current_progress(with_progress("fetch#1")) is None
    assert "progress" not in text_of(explain(with_progress("fetch#1")))
    cut = with_progress("fetch#1")
    more = replace(cut, document=replace(cut.document, open_count=70))
    assert current_progress(more) is not None, "its list of open steps is cut: it may be one of the rest"


def test_progress_from_before_the_run_was_claimed_is_another_ones() -> None:
    mine = Milestones(claimed=e.Claimed(runner="runner-1", cause="taken_over"), claimed_at=NOW - 10)
    assert current_progress(with_progress("pack#1", milestones=mine)) is not None
    assert current_progress(with_progress("pack#1", at=NOW - 20, milestones=mine)) is None
    theirs = replace(mine, claimed=e.Claimed(runner="root", cause="requested"))
    assert current_progress(with_progress("pack#1", at=NOW - 20, milestones=theirs)) is not None, (
        "clocks are not compared"
    )


# ---- who would take it


def test_a_run_bound_to_other_code_says_so_before_it_is_tried() -> None:
    waiting = log(created(version="v0"), claimed("old"), asked("ask#1"))
    text = told(waiting)
    assert "It is bound to version v0 of its code, and live workers have v1" in text
    assert "bound to version" not in told(log(created(version="v1"), claimed("old"), asked("ask#1")))
    assert "bound to version" not in told(log(created(version="v0")), due_at=NOW), "nothing of it can misfit yet"
    assert "bound to version" not in told(waiting, holder=WORKER)


def test_takers_that_are_not_heard_of_are_told() -> None:
    silent = (runner(beat_age_s=90.0),)
    text = text_of(explain(facts(Status.PENDING, due_at=NOW, runners=silent)))
    assert "have sent no heartbeat for 1 min and may be blocked: runner runner-1 (process 7 on h)" in text
    heard = (*silent, runner(id="runner-2"))
    assert "heard of" not in text_of(explain(facts(Status.PENDING, due_at=NOW, runners=heard)))


@pytest.mark.parametrize(("age_s", "unheard"), [(5.0, False), (25.0, False), (61.0, True), (119.0, True)])
def test_missing_beats_are_told_before_they_count_as_silence(age_s: float, unheard: bool) -> None:
    text = text_of(explain(facts(Status.RUNNING, STEP, holder=runner(beat_age_s=age_s))))
    assert ("has sent no heartbeat" in text) is unheard and "r is running step pack" in text


def test_a_silent_process_may_only_be_stopped() -> None:
    text = text_of(explain(facts(Status.RUNNING, STEP, holder=runner(beat_age_s=121.0))))
    assert "r may hang" in text and "kill -9 7" in text and "kill -CONT 7" in text


def test_a_process_of_another_machine_is_not_said_to_live() -> None:
    text = text_of(explain(facts(Status.RUNNING, STEP, holder=runner(beat_age_s=None, host="far"))))
    assert "whether process 7 lives can be seen at once on far only" in text


def test_a_wait_that_nobody_could_go_on_with_names_what_to_start() -> None:
    for open_leaf, status in ((CONFIRM, Status.AWAITING_INPUT), (SIGNAL, Status.WAITING_SIGNAL)):
        text = text_of(explain(facts(status, open_leaf)))
        assert "buoy worker FILE.py" in text and "buoy cancel r" in text
        assert "buoy worker" not in text_of(explain(facts(status, open_leaf, runners=ABLE)))


# ---- what was meant


def test_a_signal_that_nobody_waits_for_leaves_the_run_waiting() -> None:
    slip = MessageFacts(1, "signal", "pakced", NOW - 3, "ann")
    text = text_of(explain(facts(Status.WAITING_SIGNAL, SIGNAL, due_at=NOW, messages=(slip,), unread=1)))
    assert text.startswith("r waits for signal 'packed'.") and "what woke it is not what it waits for" in text
    assert "signal 'pakced' by ann, 3 s ago (not what it waits for now)" in text and "buoy signal r packed" in text
    right = replace(slip, about="packed")
    called = text_of(explain(facts(Status.WAITING_SIGNAL, SIGNAL, due_at=NOW, messages=(right,), unread=1)))
    assert called.startswith("r should continue, but no live worker can run it.") and "not what it waits" not in called


PAUSED = e.Paused(reason="nondeterminism", detail="event 4 is the outcome of charge#1, but the code asks no more")
BOUND = e.VersionBound(version="v2", previous="v1", renamed={"pack": "take_payment"}, detail="migrated by ann")


def test_a_wrong_migration_is_named_with_the_way_back() -> None:
    done = (created(version="v1"), claimed(), started("pack#1"), completed("pack#1"))
    text = told(log(*done, BOUND, e.Resumed(), claimed(), PAUSED))
    assert "it was migrated just before" in text and "(event 5): pack was said to be take_payment now" in text
    assert "buoy migrate run-1 --rename take_payment=pack --dry-run" in text
    assert "--rename take_payment=pack --rename OLD=NEW --dry-run" in text
    assert "look at the names that were mapped" in text


def test_a_migration_after_which_the_run_went_on_is_not_blamed() -> None:
    done = (created(version="v1"), claimed(), started("pack#1"), completed("pack#1"), BOUND)
    text = told(log(*done, claimed(), started("send#1"), PAUSED))
    assert "migrated" not in text and "buoy migrate" not in text
    plain = told(log(created(version="v1"), claimed(), PAUSED))
    assert "migrated" not in plain


def test_a_spec_held_for_its_definition_says_when_that_is_looked_at() -> None:
    held = e.Paused(reason="version", detail="definition d of spec:x is not in the store")
    events = log(created(workflow="spec:x", version="d"), claimed(), held)
    text = told(events, definition="absent")
    assert "a worker looks for that when it starts, and at every whole sweep (every 5 min)" in text
    assert "buoy migrate run-1 --spec FILE.yaml" in text
    code = text_of(explain(facts(Status.PAUSED, pause=Pause("version", "no", NOW))))
    assert "at every whole sweep" in code and "--spec" not in code


def test_a_cancelled_run_names_what_had_begun_and_how_to_take_it_up() -> None:
    asked_for = (e.CancelRequested(by="ann"), e.WorkflowCancelled())
    text = told(log(*UNDER_WAY, *asked_for))
    assert "started, without an outcome: slow#1" in text and "--from STEP --dry-run" in text
    assert "--from" not in told(log(created(), *asked_for))


# ---- the remedy that this run gets


def broken(kind: str, policy: str = "resume") -> str:
    """A run whose step failed, and that no process recovered."""
    error = e.ErrorInfo("Odd", "no", kind=kind)
    events = log(replace(created(), policy=policy), claimed("w0"), *BOOKED, started("b#1"))
    events = log(e.StepFailed(leaf=LeafId("b#1"), error=error), after=events)
    return told(events)


def test_of_a_failure_only_the_remedy_of_its_class_is_told() -> None:
    transient = broken("transient")
    assert "b#1 runs again, on a branch cut before it: its error is of class transient (try 1 of 3)." in transient
    assert "at most twice" not in transient and "paused for a person" not in transient
    permanent = broken("permanent")
    assert "The run reacts to the failure of b#1" in permanent and "Buoy first undoes" in permanent
    assert "It is paused for a person: an error of class misconfiguration" in broken("misconfiguration")
    assert "the run's policy decides" in broken("unknown", "restart")
    assert "Its policy is restart" in broken("unknown", "restart")


def test_a_run_without_anything_stable_is_told_to_begin_anew_and_nothing_else() -> None:
    events = log(created(), claimed("w0"), started("a#1"))
    text = told(events, claims=Status.AWAITING_INPUT, runners=(), drift="its document says awaiting_input")
    assert "A new branch at 0: the run begins again from the start" in text and "at the last stable event" not in text
    assert "buoy worker FILE.py" in text, "and then a worker must drive it"


def test_poison_is_put_aside_before_it_is_released_and_nobody_is_told_to_drive_it() -> None:
    solo = e.Claimed(runner="w1", cause="taken_over", evidence={"proof": "lock free", "solo": True})
    plain = replace(solo, evidence={"proof": "lock free"})
    text = told(log(*UNDER_WAY, plain, plain, *[solo] * 6), due_at=NOW, runners=())
    assert text.index("quarantine it now: buoy recover run-1") < text.index("buoy release run-1")
    assert "buoy run " not in text and "buoy worker" not in text


def test_each_command_is_named_once() -> None:
    strange = runner(id="who", registered=False, pid=0)
    for text in (lost("resume"), told(log(*UNDER_WAY), holder=strange, runners=())):
        commands = [line.rpartition(": buoy ")[2] for line in text.splitlines() if ": buoy " in line]
        assert len(commands) == len(set(commands)) > 3, text
