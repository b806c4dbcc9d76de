"""Ended runs in words: how they ended, where the error happened, and what was undone.

Invariant: what could not be undone is always said: its effect stands until a person undoes it.
"""

from __future__ import annotations

from buoy.core import events as e
from buoy.core import phrases
from buoy.core.catalogue import named
from buoy.core.explain_undone import names as undoable
from buoy.core.explain_undone import standing
from buoy.core.facts import Facts, FailedLeaf
from buoy.core.phrases import Wording
from buoy.core.spec import is_spec
from buoy.core.state import fold
from buoy.core.time_text import in_words
from buoy.core.told import Told


def completed(facts: Facts, words: Wording) -> Told:
    document = facts.document
    took = in_words(document.updated_at - document.created_at)
    return Told(
        headline=f"{document.run_id} has completed.",
        now=f"It ended {words.past(document.updated_at, facts.now)}, {took} after it was created.",
        next=("Nothing: it is over.",),
        you_can=(f"read its result: {words.command('result', document.run_id)}",),
    )


def failed(facts: Facts, words: Wording) -> Told:
    document = facts.document
    refused = _refused(facts)
    if refused is not None:
        return _ended_by_policy(facts, words, refused)
    what, lines = _failure(facts)
    stands = _stands(facts)
    return Told(
        headline=f"{document.run_id} has failed: {what}",
        now=f"It ended {words.past(document.updated_at, facts.now)}.{_parent(facts)}",
        wrong=(what, *stands),
        evidence=(*lines, *undone_lines(facts), *_without_outcome(facts)),
        next=("Nothing: it is over, unless somebody tries it again.", *_by_hand(facts)),
        you_can=(*_undo(facts), *_look(facts, words), *_again(facts, words)),
    )


def _refused(facts: Facts) -> e.Claimed | None:
    """The claim of a recovery that ended the run: its last event but one."""
    log = facts.log or ()
    if len(log) < 2 or not isinstance(log[-1].body, e.WorkflowFailed):
        return None
    before = log[-2].body
    # A failed step is told by its error, also where the policy ended the run.
    if not isinstance(before, e.Claimed) or before.evidence.get("finding") in (None, "A4"):
        return None
    return before


def _ended_by_policy(facts: Facts, words: Wording, refused: e.Claimed) -> Told:
    """Buoy itself ended the run, since the workflow does not allow to execute lost work a second time."""
    document, found = facts.document, refused.evidence
    begun = phrases.listed(_begun(facts))
    lost = f"its process ended in the middle of {begun}" if begun else "its process ended before the run did"
    orphaned = document.error is not None and document.error.kind == "orphaned"
    rule = (
        "no process and no stored definition knows its workflow, so Buoy ends it as failed"
        if orphaned
        else 'the policy of its workflow is fail (recovery="fail"): Buoy ends such a run as failed and does not '
        "execute lost work a second time"
    )
    place = f"process {found['pid']} on {found.get('host')}" if found.get("pid") else "its process"
    by = f"{place}, runner {found['runner']}" if found.get("runner") else place
    proof = f"{by}, was found dead: {found['proof']}" if found.get("proof") else f"{by} was lost"
    check = (f"find out how much of {begun} was done: its effects may be there or not",) if begun else ()
    return Told(
        headline=f"{document.run_id} has failed: {lost}, and Buoy did not run it again.",
        now=f"Buoy ended it {words.past(document.updated_at, facts.now)}.{_parent(facts)}",
        wrong=(rule, *_stands(facts)),
        evidence=(f"{proof}; this is {named(str(found['finding']))}", *undone_lines(facts), *_without_outcome(facts)),
        next=("Nothing: it is over, unless a person tries it again.", *_by_hand(facts)),
        you_can=(*check, *_undo(facts), *_look(facts, words), *_again(facts, words)),
    )


def cancelled(facts: Facts, words: Wording) -> Told:
    document, asked = facts.document, facts.story.cancel
    why = "" if document.error is None else f": {document.error.message}"
    by = f" {asked.by} asked for it." if asked is not None and asked.by else ""
    return Told(
        headline=f"{document.run_id} was cancelled{why}",
        now=f"It ended {words.past(document.updated_at, facts.now)}.{by}",
        wrong=_stands(facts),
        evidence=(*undone_lines(facts), *_without_outcome(facts)),
        next=("Nothing: it is over.", *_by_hand(facts)),
        you_can=(*_undo(facts), *_take_up_again(facts, words)),
    )


def _take_up_again(facts: Facts, words: Wording) -> tuple[str, ...]:
    """A cancelled run may be taken up again, but nobody can guess from where."""
    if not any(isinstance(event.body, e.StepStarted | e.ModuleStarted) for event in facts.log or ()):
        return ()
    command = words.command("retry", facts.document.run_id, "--from", "STEP", "--dry-run")
    return (f"take it up again from a step that you name (without --dry-run: do it): {command}",)


def cause_of(facts: Facts) -> str | None:
    """Why a run undoes what it did, as far as its log tells."""
    asked = facts.story.cancel
    if asked is not None:
        return f"{asked.by or 'somebody'} cancelled it" + (f": {asked.reason}" if asked.reason else "")
    step = facts.story.failed
    if step is not None and step.error is not None:
        return f"step {step.leaf} failed: {phrases.error_text(step.error)}"
    child = facts.story.child
    return None if child is None else f"child {child.child} {child.status}"


def undone_lines(facts: Facts) -> tuple[str, ...]:
    """What has been undone."""
    names = phrases.listed([str(leaf) for leaf in facts.story.undone])
    return (f"undone: {names}",) if names else ()


def _without_outcome(facts: Facts) -> tuple[str, ...]:
    """What had begun when the run was ended from outside."""
    names = phrases.listed(_begun(facts))
    return (f"begun, and without an outcome: {names}",) if names else ()


def _begun(facts: Facts) -> list[str]:
    leaves = fold(facts.document.run_id, facts.log or ()).leaves.values()
    return [str(each.id) for each in leaves if each.kind in ("step", "module") and each.phase == "open"]


def _failed_step(facts: Facts) -> FailedLeaf | None:
    """The step whose failure ended the run; a failure that was caught before is not it."""
    step, error = facts.story.failed, facts.document.error
    if step is None or step.error is None or error is None:
        return None
    return step if str(step.leaf) in error.message or is_spec(facts.document.workflow) else None


def _failed_child(facts: Facts) -> str | None:
    child, error = facts.story.child, facts.document.error
    return None if child is None or error is None or child.child not in error.message else str(child.child)


def _failure(facts: Facts) -> tuple[str, tuple[str, ...]]:
    """What failed, in one line, and where."""
    error, step = facts.document.error, _failed_step(facts)
    if step is not None and step.error is not None:
        tried = f"step {step.leaf} failed for good after {phrases.counted(step.attempts, 'attempt')}"
        return f"step {step.leaf}: {phrases.error_text(step.error)}", (tried, *phrases.trouble_lines(step.error))
    last = facts.story.failed
    times = "" if last is None else phrases.counted(last.attempts, "attempt")
    lines = () if last is None else (f"the step that failed last is {last.leaf}, after {times}",)
    if error is None:
        return "no reason was recorded", lines
    return phrases.error_text(error), (*lines, *phrases.traceback_lines(error))


def _stands(facts: Facts) -> tuple[str, ...]:
    failed = [f"{leaf} is not undone: {phrases.error_text(error)}" for leaf, error in facts.story.not_undone.items()]
    never = standing(facts.log or ())
    if never:
        failed.append(f"ended from outside, it ran no compensations: {undoable(never)} completed and is not undone")
    return tuple(failed)


def _not_undone(facts: Facts) -> str:
    """What still has its effect, though the run has ended: its compensation failed, or was never begun."""
    return phrases.listed([str(leaf) for leaf in (*facts.story.not_undone, *standing(facts.log or ()))])


def _by_hand(facts: Facts) -> tuple[str, ...]:
    names = _not_undone(facts)
    return (f"What is not undone stands until somebody undoes it: {names}.",) if names else ()


def _undo(facts: Facts) -> tuple[str, ...]:
    names = _not_undone(facts)
    return (f"undo by hand what is left of: {names}",) if names else ()


def _parent(facts: Facts) -> str:
    parent = facts.document.parent
    return "" if parent is None else f" It is a child of {parent.run}, which is told how it ended."


def _look(facts: Facts, words: Wording) -> tuple[str, ...]:
    """Where more is to be seen."""
    run_id, step, child = facts.document.run_id, _failed_step(facts), _failed_child(facts)
    found: list[str] = []
    if child is not None:
        found.append(f"see why child {child} failed: {words.command('why', child)}")
    if step is not None and is_spec(facts.document.workflow):
        found.append(f"read what its command wrote: {words.command('logs', run_id, str(step.leaf))}")
    parent = facts.document.parent
    if parent is not None:
        found.append(f"see what its parent made of it: {words.command('why', parent.run)}")
    return tuple(found)


def _again(facts: Facts, words: Wording) -> tuple[str, ...]:
    run_id = facts.document.run_id
    if _failed_step(facts) is not None:
        place = " from the step that failed"
    else:
        place = ", with a new child" if _failed_child(facts) is not None else ""
    return (
        f"correct the cause, then try it again{place}: {words.command('retry', run_id)}",
        f"see first what would run again: {words.command('retry', run_id, '--dry-run')}",
    )
