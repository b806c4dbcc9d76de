"""What a person at night reads: true, and each command leads out of the trouble."""

from __future__ import annotations

import msgspec

from buoy.core import limits
from buoy.core.diagnosis.facts import Facts, MessageFacts, RunnerFacts, TaskFacts, milestones_of
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.explain.explain import explain
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.core.log.pause import Pause
from buoy.core.remedy.rewind import plan_return

from .cases import DEAD, NOW, WORKER, facts_of, planned
from .logbook import RUN, asked, branched, child, child_ended, claimed, completed, created, failed, log, started
from .logbook import undoing as compensating
from .logbook import undone as compensated
from .test_explain import CONFIRM, SIGNAL, facts, text_of
from .test_health import ABLE, LOCK_FREE, STEP, runner
from .test_health import NOW as THEN

TRACE = """Traceback (most recent call last):
  File "/site/buoy/engine/calls.py", line 135, in waiting
    return (yield from context.ask_for(request))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/app/flows.py", line 7, in charge
    return prices["lamp"]
           ~~~~~~^^^^^^^^
KeyError: 'lamp'
"""
DEAR = e.ErrorInfo("KeyError", "'lamp'", traceback=TRACE)
ENDED = e.WorkflowFailed(
    error=e.ErrorInfo("KeyError", "charge#1 failed: KeyError: 'lamp'", traceback="X\nY"), cause_leaf=LeafId("charge#1")
)
CHARGED = (started("charge#1"), e.StepFailed(leaf=LeafId("charge#1"), error=DEAR, attempt=2))


def told(events: list[e.Event], **more: object) -> str:
    return text_of(explain(facts_of(events, milestones=milestones_of(events), **more)))


def test_a_failed_run_shows_where_its_step_failed_in_the_users_code() -> None:
    text = told(log(created(), claimed(), *CHARGED, ENDED))
    assert "run-1 has failed: step charge#1: KeyError: 'lamp'" in text
    assert '  File "/srv/app/flows.py", line 7, in charge\n    return prices["lamp"]\nKeyError' in text
    assert "buoy/engine" not in text and "^^^" not in text
    assert "failed finally after 2 attempts" in text and "from the step that failed: buoy retry run-1" in text


def test_a_failure_that_was_caught_is_not_told_as_what_ended_the_run() -> None:
    own = e.WorkflowFailed(error=e.ErrorInfo("ValueError", "odd"))
    text = told(log(created(), claimed(), *CHARGED, own))
    assert "has failed: ValueError: odd" in text and "from the step that failed" not in text


def test_what_could_not_be_undone_is_said_and_left_to_a_person() -> None:
    kept = e.CompensationFailed(leaf=LeafId("pay#1"), error=e.ErrorInfo("Bank", "closed"))
    text = told(log(
        created(), claimed(), started("a#1"), completed("a#1"), started("pay#1"), completed("pay#1"), *CHARGED,
        compensating("pay#1"), kept, compensating("a#1"), compensated("a#1"), ENDED,
    ))  # fmt: skip
    assert "pay#1 is not undone: Bank: closed" in text
    assert "stand until a person undoes them: pay#1" in text and "undo by hand the effects of: pay#1" in text
    assert "undone: a#1" in text


def test_a_run_that_undoes_says_why_and_is_not_offered_to_be_cancelled() -> None:
    undoing = log(created(), claimed("w1"), started("a#1"), completed("a#1"), *CHARGED, compensating("a#1"))
    text = told(undoing, holder=WORKER)
    assert "because step charge#1 failed: KeyError: 'lamp'" in text
    assert "buoy pause run-1" in text and "buoy cancel" not in text


def test_a_run_whose_child_failed_names_it_and_its_retry_runs_a_new_child() -> None:
    error = e.ErrorInfo("RunFailed", "child child-1 failed: KeyError: 'x'")
    ended = e.WorkflowFailed(error=error, cause_child=RunId("child-1"))
    events = log(created(), claimed(), child("pack#1"), child_ended("pack#1", "failed"), ended)
    text = told(events)
    assert "see why child child-1 failed: buoy why child-1" in text
    assert "with a new child: buoy retry run-1" in text
    assert plan_return(RUN, events).again == ("pack#1",)


def test_what_had_begun_when_a_run_was_failed_from_outside_goes_on_at_a_retry() -> None:
    refused = e.WorkflowFailed(error=e.ErrorInfo("RecoveryRefused", "its policy is fail"))
    events = log(created(), claimed(), started("a#1"), refused)
    assert plan_return(RUN, events).under_way == ("a#1",)
    assert "started, without an outcome: a#1" in told(events)


def test_what_an_earlier_branch_came_to_is_not_told_of_the_current_one() -> None:
    first = log(created(), claimed(), *CHARGED, ENDED)
    again = log(branched(1, cutoff=2, dropped=["charge#1"]), claimed(), started("charge#1"), after=first)
    assert milestones_of(again).failed is None
    assert milestones_of(first).failed is not None


def test_a_parent_names_its_child_and_does_not_go_on_by_itself() -> None:
    events = log(created(), claimed("w1"), child("pack#1"))
    text = told(events, holder=WORKER, children={RunId("child-1"): "awaiting_input"})
    assert "It continues when child-1 has ended." in text and "by itself" not in text
    assert "see what child child-1 does: buoy why child-1" in text


def test_a_run_that_its_runner_has_taken_and_not_begun_is_not_called_running() -> None:
    events = log(created(), claimed("w0"), started("a#1"))
    text = told(events, holder=WORKER)
    assert "is about to continue at step a (attempt 1); no process executes it yet" in text
    assert "run-1 is running step a" in told(log(created(), claimed("w1"), started("a#1")), holder=WORKER)


def test_a_run_that_must_be_driven_alone_says_so_with_its_crashes() -> None:
    lost = [e.Claimed(runner=f"w-{n}", cause="taken_over", evidence={"proof": "lock free"}) for n in range(2)]
    text = told(log(created(), claimed("w0"), started("a#1"), *lost), holder=WORKER)
    assert "it is isolated, so it waits until nothing else runs there" in text
    assert "its process ended 3 times in a row at a#1, 0 of them isolated" in text
    living = msgspec.structs.replace(WORKER, id="w-1")
    assert "ended 2 times in a row" in told(log(created(), claimed(), started("a#1"), *lost), runners=(living,))


def test_an_answer_that_is_on_its_way_is_not_asked_for_again() -> None:
    given = MessageFacts(1, "answer", "r/ask#1/0", THEN - 3, "ann")
    text = text_of(explain(facts(Status.AWAITING_INPUT, CONFIRM, holder=runner(), messages=(given,), unread=1)))
    assert "r has its answer, but no worker has read it yet." in text
    assert "an answer to 'Ship it?' by ann, 3 s ago" in text and "buoy answer" not in text


def test_who_waits_for_a_person_can_be_answered_while_nobody_drives_it() -> None:
    lost = runner(proof=LOCK_FREE)
    text = text_of(explain(facts(Status.AWAITING_INPUT, CONFIRM, holder=lost)))
    assert "was waiting for the question 'Ship it?' when" in text and "buoy answer r yes" in text
    assert "buoy signal r packed" in text_of(explain(facts(Status.WAITING_SIGNAL, SIGNAL, holder=lost)))


def test_missing_beats_are_told_before_they_count_as_silence() -> None:
    late = text_of(explain(facts(Status.RUNNING, STEP, holder=runner(beat_age_s=75.0))))
    assert "it should come every 30 s, and counts as silent from 2 min on" in late
    assert "should come" not in text_of(explain(facts(Status.RUNNING, STEP, holder=runner())))


def due(workflow: str = "order", **scope: str) -> Facts:
    events = log(created(workflow=workflow, **scope))
    return facts_of(events, due_at=NOW, task=TaskFacts("t", 1, "due"), runners=())


def test_a_worker_of_the_runs_own_env_and_stack_is_advised() -> None:
    given = due(env="test", stack="billing")
    text = text_of(explain(given))
    assert "BUOY_ENV=test BUOY_STACK=billing buoy worker FILE.py" in text
    assert "BUOY_ENV=test BUOY_STACK=billing buoy run FILE.py:order --id run-1" in text
    assert what_is_missing(given.document, [WORKER]) == (
        "no live worker that knows workflow 'order' works in env 'test': the live ones work in the default env"
    )
    mine = RunnerFacts(id="w", workflows={"order": ()}, env="test", stack="mine")
    assert "takes runs of stack 'billing'" in (what_is_missing(given.document, [mine]) or "")
    assert "works in the default env: the live ones work in env 'test'" in (
        what_is_missing(due().document, [mine]) or ""
    )


def test_a_spec_and_a_step_elsewhere_get_commands_that_fit_them() -> None:
    spec = text_of(explain(msgspec.structs.replace(due("spec:nightly"), calls=("jobs",))))
    assert "buoy worker --allow-calls jobs" in spec
    assert "buoy run FILE.yaml --allow-calls jobs --id run-1" in spec
    step = text_of(explain(due("step:train", queue="gpu")))
    assert "the file that has step 'train': buoy worker FILE.py --queue gpu" in step and "buoy run" not in step


def test_a_pause_says_what_is_open_and_how_a_renamed_step_is_mapped() -> None:
    differs = e.Difference(LeafId("charge#1"), LeafId("take_payment#1"), 4)
    pause = Pause("version", "it does not fit", THEN, tried_version="v1", difference=differs)
    text = text_of(explain(facts(Status.PAUSED, CONFIRM, pause=pause, runners=ABLE)))
    assert "buoy migrate r --rename charge=take_payment --dry-run" in text
    assert "Open: the question 'Ship it?'." in text and "live workers have v1" in text
    assert "try it again with the code that is there: buoy resume r" in text
    busy = facts(Status.PAUSED, STEP, pause=Pause("user", None, THEN), holder=runner())
    assert "Still under way: step pack (attempt 1)." in text_of(explain(busy))


def test_a_log_that_cannot_be_read_names_no_command_that_reads_it() -> None:
    text = text_of(explain(facts(Status.RUNNING, unreadable="event 3 is missing")))
    assert "buoy doctor" in text and "buoy events" not in text and "by its summary, the log has 5 events" in text


def test_a_question_that_nobody_can_wake_for_does_not_deny_its_messages() -> None:
    events = log(created(), claimed(), asked("ask#1"))
    message = MessageFacts(1, "answer", "q/ask#1", NOW - 1)
    text = told(events, task=TaskFacts("t", 1, "missing"), messages=(message,), unread=1)
    assert "no wake-up is set to read its messages" in text and "A new task is made" in text


def test_a_lost_compensation_is_executed_again() -> None:
    events = log(created(), claimed(), started("a#1"), completed("a#1"), failed("b#1"), compensating("a#1"))
    assert planned(facts_of(events, holder=DEAD), "H1").again


def test_a_request_to_cancel_that_waits_is_not_advised_again() -> None:
    waits = facts(Status.WAITING_SIGNAL, SIGNAL)
    assert "buoy cancel r" in text_of(explain(waits))
    asked_to = MessageFacts(1, "cancel", sent_at=waits.now - 2.0, by="ann")
    found = explain(msgspec.structs.replace(waits, messages=(asked_to,), unread=1))
    assert "buoy cancel r" not in text_of(found) and "not read yet: " in text_of(found)


def test_a_signal_is_not_advised_while_the_inbox_refuses_signals() -> None:
    full = msgspec.structs.replace(facts(Status.WAITING_SIGNAL, SIGNAL), unread=limits.INBOX_UNREAD_MAX)
    found = explain(full)
    assert "Its inbox is full: 10,000 messages wait." in text_of(found)
    assert not {"signal"} & {each.kind for each in found.advice}
    assert "buoy cancel r" in text_of(found), "requests have room of their own"
