"""Ended runs in words: how they ended, where the error happened, and what was undone.

Invariant: the text always names what could not be undone: its effect stands until a person undoes it.
"""

from __future__ import annotations

from buoy.core.advice import Advice, Blank, act
from buoy.core.diagnosis.catalogue import named
from buoy.core.diagnosis.facts import Facts, FailedLeaf, is_cause
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.explain.compensation import names as undoable
from buoy.core.explain.compensation import standing
from buoy.core.explain.narrative import Narrative
from buoy.core.explain.phrases import Wording
from buoy.core.log import events as e
from buoy.core.log.state import fold
from buoy.core.log.wording import counted, error_text
from buoy.core.spec.model import is_spec


def completed(facts: Facts, words: Wording) -> Narrative:
    document = facts.document
    took = in_words(document.updated_at - document.created_at)
    return Narrative(
        headline=f"{document.run_id} has completed.",
        now=f"It ended {words.past(document.updated_at, facts.now)}, {took} after it was created.",
        next=("Nothing: it has ended.",),
        you_can=(words.advise("read its result", "result", document.run_id),),
    )


def failed(facts: Facts, words: Wording) -> Narrative:
    document = facts.document
    refused = _refused(facts)
    if refused is not None:
        return _ended_by_policy(facts, words, refused)
    what, lines = _failure(facts)
    stands = _stands(facts)
    return Narrative(
        headline=f"{document.run_id} has failed: {what}",
        now=f"It ended {words.past(document.updated_at, facts.now)}.{_parent(facts)}",
        wrong=(what, *stands),
        evidence=(*lines, *undone_lines(facts), *_without_outcome(facts)),
        next=("Nothing: it has ended, unless a person tries it again.", *_by_hand(facts)),
        you_can=(*_undo(facts), *_look(facts, words), *_again(facts, words)),
    )


def _refused(facts: Facts) -> e.Claimed | None:
    """The claim of a recovery that ended the run: its last event but one."""
    log = facts.log or ()
    if len(log) < 2 or not isinstance(log[-1].body, e.WorkflowFailed):
        return None
    before = log[-2].body
    # The error of a failed step says more than the policy that ended the run.
    if not isinstance(before, e.Claimed) or before.evidence.get("finding") in (None, "A4"):
        return None
    return before


def _ended_by_policy(facts: Facts, words: Wording, refused: e.Claimed) -> Narrative:
    """Buoy ended the run: its policy forbids a second execution of lost work."""
    document, found = facts.document, refused.evidence
    begun = phrases.listed(_begun(facts))
    lost = f"its process ended in the middle of {begun}" if begun else "its process ended before the run did"
    orphaned = document.error is not None and document.error.kind == "orphaned"
    rule = (
        "no process and no stored definition knows its workflow, so Buoy ends it as failed"
        if orphaned
        else 'the policy of its workflow is fail (recovery="fail"): Buoy ends such a run as failed and does not '
        "run lost work a second time"
    )
    place = f"process {found['pid']} on {found.get('host')}" if found.get("pid") else "its process"
    by = f"{place}, runner {found['runner']}" if found.get("runner") else place
    proof = f"{by}, was found dead: {found['proof']}" if found.get("proof") else f"{by} was lost"
    check = (act(f"check how much of {begun} was done: its effects may or may not be there"),) if begun else ()
    return Narrative(
        headline=f"{document.run_id} has failed: {lost}, and Buoy did not run it again.",
        now=f"Buoy ended it {words.past(document.updated_at, facts.now)}.{_parent(facts)}",
        wrong=(rule, *_stands(facts)),
        evidence=(f"{proof}; this is {named(str(found['finding']))}", *undone_lines(facts), *_without_outcome(facts)),
        next=("Nothing: it has ended, unless a person tries it again.", *_by_hand(facts)),
        you_can=(*check, *_undo(facts), *_look(facts, words), *_again(facts, words)),
    )


def cancelled(facts: Facts, words: Wording) -> Narrative:
    document, asked = facts.document, facts.milestones.cancel
    why = "" if document.error is None else f": {document.error.message}"
    by = f" {asked.by} asked for it." if asked is not None and asked.by else ""
    return Narrative(
        headline=f"{document.run_id} was cancelled{why}",
        now=f"It ended {words.past(document.updated_at, facts.now)}.{by}",
        wrong=_stands(facts),
        evidence=(*undone_lines(facts), *_without_outcome(facts)),
        next=("Nothing: it has ended.", *_by_hand(facts)),
        you_can=(*_undo(facts), *_take_up_again(facts, words)),
    )


def moved(facts: Facts, words: Wording) -> Narrative:
    document = facts.document
    return Narrative(
        headline=f"{document.run_id} has moved to another store: {document.moved_to}",
        now=f"This store let go of it {words.past(document.updated_at, facts.now)}.",
        next=("Nothing here. It continues in the other store.",),
    )


def _take_up_again(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """A cancelled run can continue, but only a person knows from which step."""
    if not any(isinstance(event.body, e.StepStarted | e.ModuleStarted) for event in facts.log or ()):
        return ()
    text = "continue it from a step that you name (drop --dry-run to do it)"
    return (words.advise(text, "retry", facts.document.run_id, "--from", Blank("STEP"), "--dry-run"),)


def cause_of(facts: Facts) -> str | None:
    """Why a run undoes its steps, as far as its log says."""
    asked = facts.milestones.cancel
    if asked is not None:
        return f"{asked.by or 'a client'} cancelled it" + (f": {asked.reason}" if asked.reason else "")
    step = facts.milestones.failed
    if step is not None and step.error is not None:
        return f"step {step.leaf} failed: {error_text(step.error)}"
    child = facts.milestones.child
    return None if child is None else f"child {child.child} {child.status}"


def undone_lines(facts: Facts) -> tuple[str, ...]:
    """What has been undone."""
    names = phrases.listed([str(leaf) for leaf in facts.milestones.undone])
    return (f"undone: {names}",) if names else ()


def _without_outcome(facts: Facts) -> tuple[str, ...]:
    """The steps that had started when the run was ended from outside."""
    names = phrases.listed(_begun(facts))
    return (f"started, without an outcome: {names}",) if names else ()


def _begun(facts: Facts) -> list[str]:
    leaves = fold(facts.document.run_id, facts.log or ()).leaves.values()
    return [str(each.id) for each in leaves if each.kind in ("step", "module") and each.phase == "open"]


def _failed_step(facts: Facts) -> FailedLeaf | None:
    """The step whose failure ended the run; a failure that was caught before is not it."""
    step = facts.milestones.failed
    if step is None or step.error is None or facts.document.error is None:
        return None
    return step if is_cause(facts.milestones.end, step.leaf) or is_spec(facts.document.workflow) else None


def _failed_child(facts: Facts) -> str | None:
    child = facts.milestones.child
    return str(child.child) if child is not None and is_cause(facts.milestones.end, child.leaf, child.child) else None


def _failure(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """What failed, in one line, and where."""
    error, step = facts.document.error, _failed_step(facts)
    if step is not None and step.error is not None:
        tried = f"step {step.leaf} failed finally after {counted(step.attempts, 'attempt')}"
        return f"step {step.leaf}: {error_text(step.error)}", (tried, *phrases.trouble_lines(step.error))
    last = facts.milestones.failed
    times = "" if last is None else counted(last.attempts, "attempt")
    lines = () if last is None else (f"the step that failed last is {last.leaf}, after {times}",)
    if error is None:
        return "no reason was recorded", lines
    return error_text(error), (*lines, *phrases.traceback_lines(error))


def _stands(facts: Facts) -> tuple[str, ...]:
    failed = [f"{leaf} is not undone: {error_text(error)}" for leaf, error in facts.milestones.not_undone.items()]
    never = standing(facts.log or ())
    if never:
        failed.append(
            f"it was ended from outside and ran no compensations: {undoable(never)} completed and is not undone"
        )
    return tuple(failed)


def _not_undone(facts: Facts) -> str:
    """Steps whose effects outlast the run: their compensation failed or never started."""
    return phrases.listed([str(leaf) for leaf in (*facts.milestones.not_undone, *standing(facts.log or ()))])


def _by_hand(facts: Facts) -> tuple[str, ...]:
    names = _not_undone(facts)
    return (f"These effects stand until a person undoes them: {names}.",) if names else ()


def _undo(facts: Facts) -> tuple[Advice, ...]:
    names = _not_undone(facts)
    return (act(f"undo by hand the effects of: {names}"),) if names else ()


def _parent(facts: Facts) -> str:
    parent = facts.document.parent
    return "" if parent is None else f" It is a child of {parent.run}, which hears how it ended."


def _look(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """Where a person sees more."""
    run_id, step, child = facts.document.run_id, _failed_step(facts), _failed_child(facts)
    found: list[Advice] = []
    if child is not None:
        found.append(words.advise(f"see why child {child} failed", "why", child))
    if step is not None and is_spec(facts.document.workflow):
        found.append(words.advise("read what its command wrote", "logs", run_id, str(step.leaf)))
    parent = facts.document.parent
    if parent is not None:
        found.append(words.advise("see how its parent continued", "why", parent.run))
    return tuple(found)


def _again(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    run_id = facts.document.run_id
    if _failed_step(facts) is not None:
        place = " from the step that failed"
    else:
        place = ", with a new child" if _failed_child(facts) is not None else ""
    return (
        words.advise(f"correct the cause, then try it again{place}", "retry", run_id),
        words.advise("see first what would run again", "retry", run_id, "--dry-run"),
    )
