"""Recovery lines: what a recovery did or would do, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from buoy.core.explain import compensation
from buoy.core.explain.phrases import Wording, active_leaves, status_text
from buoy.core.log.lifecycle import Status
from buoy.core.remedy.plan import RecoveryPlan
from buoy.operations.control.recover import Recovered, done_text, dropped

if TYPE_CHECKING:
    from buoy import Recovery

_SHOWN_MAX = 20


def recovery_lines(done: Recovered, words: Wording) -> list[str]:
    """What was found, what is done about it, and what that means for the run's steps."""
    found = done.recovery
    if not found.needed and found.error is None:
        return [f"run {found.run_id} needs no recovery{_because(found)}", *_other_way(found, words)]
    lines = [f"run {found.run_id}: {found.reason}"] if found.reason else [f"run {found.run_id}"]
    if found.plan is not None:
        lines += _plan_lines(done, found.plan)
        lines += _undo_lines(done, found.plan)
    if found.error is not None:
        lines.append(f"  not done:   {found.error}")
    if found.note is not None:
        lines.append(f"  left:       {found.note}")
    return lines


def _plan_lines(found: Recovered, plan: RecoveryPlan) -> list[str]:
    would = "would be " if found.dry_run else "was "
    rebuilt = plan.finding.remedy == "rebuild"
    rests = plan.branch is not None and not plan.wakes
    moved = "moved to a new branch, and stays paused" if rests else done_text(found.recovery.action)
    lines = [f"  remedy:     {_rewritten(plan, would) if rebuilt else f'it {would}{moved}'}"]
    if plan.branch is not None:
        cut = plan.cutoff_seq or 0
        kept = [f"what ended up to event {cut}"] if cut else []
        kept += [_some(plan.kept)] if plan.kept else []
        lines.append(f"  new branch: {plan.branch}, from branch {plan.parent}, cut after event {cut}")
        lines.append(f"  is kept:    {', and '.join(kept) or 'nothing of what happened'}")
        lines.append(f"  is dropped: {_some(dropped(plan))}")
    return [*lines, f"  runs again: {_some(plan.again)}"]


def _undo_lines(done: Recovered, plan: RecoveryPlan) -> list[str]:
    found, stands, left = done.recovery, done.standing, done.not_undone
    lines: list[str] = []
    if plan.action == "fail" and found.document is not None:
        busy = tuple(each.leaf for each in active_leaves(found.document))
        lines += [f"  no outcome: {_some(busy)}, which had begun"] if busy else []
    if left:
        then = "no compensation runs" if plan.action == "fail" else "executed a second time, under the same key"
        lines.append(f"  not undone: {compensation.names(left)}: {then}")
    if plan.action == "compensate" and stands:
        lines.append(f"  is undone:  {compensation.names(stands)}")
    return lines


def _because(found: Recovery) -> str:
    """Why the run needs no recovery."""
    doc = found.document
    if doc is not None and doc.ended:
        return f": it is {doc.status}"
    if doc is not None and doc.pause is not None:
        return f": it is paused ({doc.pause.reason}{': ' + doc.pause.detail if doc.pause.detail else ''})"
    if found.note is not None:
        return f", but it does not continue either: {found.note}"
    healthy = "; ".join(f"{each.code}: {each.reason}" for each in found.findings[:3])
    if healthy or doc is None:
        return f": {healthy}" if healthy else ""
    return f": it is {status_text(doc.status)}, and nothing wrong was found"


def _other_way(found: Recovery, words: Wording) -> list[str]:
    """What helps where a recovery does not."""
    doc = found.document
    if doc is not None and doc.status is Status.FAILED:
        return [f"try it again: {words.command('retry', found.run_id)}"]
    if doc is not None and doc.pause is not None and doc.pause.reason == "version":
        renamed = words.command("migrate", found.run_id, "--rename", "OLD=NEW")
        return [f"see what does not fit: {words.command('why', found.run_id)}", f"if a step was renamed: {renamed}"]
    if doc is not None and doc.pause is not None:
        verb = "release" if doc.pause.reason == "poison" else "resume"
        return [f"continue it: {words.command(verb, found.run_id)}"]
    return [] if found.note is None else [f"see why: {words.command('why', found.run_id)}"]


def _rewritten(plan: RecoveryPlan, would: str) -> str:
    """The remedy of a run with a wrong document: the run itself does not move."""
    first = f"that events may have been lost {would}written into its log, then " if plan.bodies else ""
    return f"{first}its document {would}rebuilt from its log"


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_MAX]) or "nothing"
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} more"
