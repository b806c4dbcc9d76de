"""`buoy recover`: what is wrong with a run, what would be done about it, and then doing it.

Invariants: a run that a living process drives is left alone. What would be done is shown by `--dry-run`, before it is.
"""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.cli.terminal.run_ids import run_argument
from buoy.core.explain import compensation
from buoy.core.explain.phrases import Wording, active_leaves, status_text
from buoy.core.ids import LeafId, RunnerId
from buoy.core.log.lifecycle import Status
from buoy.core.remedy.plan import RecoveryPlan
from buoy.engine.client.client import Client
from buoy.errors import StoreUnusable, Unavailable
from buoy.recovery.failure_detector import FailureDetector, proven_dead
from buoy.recovery.recover import Recovery, examine, recover_run
from buoy.recovery.sweep.scan import held_by

_SHOWN_MAX = 20
# Completed steps that could be undone, with the names of their compensations.
Standing = dict[LeafId, str]


@click.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Only show the branch, what is kept and what would run again.")
@shared_options
def recover(run_id: str, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Check a run, and bring it back if something is wrong with it.

    Nothing is removed: where the past must be hidden, the run goes on on a new branch of its log. Completed steps that
    are kept are not executed again. A run that a living process drives is left alone.

    \b
    Example:
      buoy recover order-1 --dry-run

    Exit code: 0 nothing is wrong, or it was recovered, 1 it could not be, 2 no such run, 5 store unusable.
    """
    found, stands = go(_recover(run_id, store, dry_run=dry_run))
    if as_json:
        print_json({"dry_run": dry_run, **recovery_fields(found, stands)})
    else:
        click.echo("\n".join(_lines(found, stands, wording(store, local), dry_run=dry_run)))
    return Exit.FAILED if found.error is not None else Exit.OK


async def _recover(run_id: str, store: str | None, *, dry_run: bool) -> tuple[Recovery, Standing]:
    async with connected(store) as client:
        stands, holder = await _standing(client, run_id), (await client.record(run_id)).holder
        found = await recover_run(client, run_id, dry_run=dry_run)
        if holder is not None and not dry_run:
            await strike_off(client, holder)
        return found, stands


async def strike_off(client: Client, runner: RunnerId) -> None:
    """A dead runner that holds nothing any more is declared gone, as a sweeper would: nobody need look after it."""
    record = next((each for each in await client.store.runners() if each.info.id == runner), None)
    proof = None if record is None else await proven_dead(client.liveness, record)
    if record is None or proof is None:
        return
    async for _ in held_by(client.store, runner):
        return
    await FailureDetector(client.store, client.liveness, client.clock).declare_dead(record, proof)


async def _standing(client: Client, run_id: str) -> Standing:
    """What could be undone before anything is done about the run. What cannot be read now, the recovery will tell."""
    try:
        seen = await examine(client, (await client.record(run_id)).document.run_id)
    except (Unavailable, StoreUnusable):
        return {}
    return compensation.standing(seen.facts.log or ())


def recovery_fields(found: Recovery, stands: Standing | None = None) -> dict[str, object]:
    """A recovery as `--json` gives it."""
    plan = found.plan
    shown: dict[str, object] = {
        name: getattr(found, name)
        for name in ("run_id", "needed", "new_branch_id", "reason", "error", "note", "action")
    }
    shown["findings"] = found.findings
    if plan is not None:
        fields = {name: getattr(plan, name) for name in ("branch", "parent", "cutoff_seq", "kept")}
        kept_up = _not_undone(plan, stands or {})
        shown["plan"] = {**fields, "dropped": _dropped(plan), "again": plan.again, "not_undone": list(kept_up)}
    return shown


def _lines(found: Recovery, stands: Standing, words: Wording, *, dry_run: bool) -> list[str]:
    if not found.needed and found.error is None:
        return [f"run {found.run_id} needs no recovery{_because(found)}", *_other_way(found, words)]
    lines = [f"run {found.run_id}: {found.reason}"] if found.reason else [f"run {found.run_id}"]
    if found.plan is not None:
        lines += _plan_lines(found, found.plan, dry_run=dry_run)
        lines += _undo_lines(found, found.plan, stands)
    if found.error is not None:
        lines.append(f"  not done:   {found.error}")
    if found.note is not None:
        lines.append(f"  left:       {found.note}")
    return lines


def _plan_lines(found: Recovery, plan: RecoveryPlan, *, dry_run: bool) -> list[str]:
    would = "would be " if dry_run else "was "
    anew = plan.finding.remedy == "rebuild"
    rests = plan.branch is not None and not plan.wakes
    done = "moved to a new branch, and stays paused" if rests else done_text(found.action)
    lines = [f"  remedy:     {_rewritten(plan, would) if anew else f'it {would}{done}'}"]
    if plan.branch is not None:
        cut = plan.cutoff_seq or 0
        kept = [f"what ended up to event {cut}"] if cut else []
        kept += [_some(plan.kept)] if plan.kept else []
        lines.append(f"  new branch: {plan.branch}, from branch {plan.parent}, cut after event {cut}")
        lines.append(f"  is kept:    {', and '.join(kept) or 'nothing of what happened'}")
        lines.append(f"  is dropped: {_some(_dropped(plan))}")
    return [*lines, f"  runs again: {_some(plan.again)}"]


def _dropped(plan: RecoveryPlan) -> tuple[LeafId, ...]:
    """What counts no more; a branch from the beginning drops it by its cut alone."""
    return plan.again if plan.action == "restart" else plan.dropped


def _not_undone(plan: RecoveryPlan, stands: Standing) -> Standing:
    """What could be undone, and is left standing by that plan: the run ends, or executes it a second time."""
    if plan.action == "fail":
        return stands
    return {leaf: name for leaf, name in stands.items() if leaf in _dropped(plan)}


def _undo_lines(found: Recovery, plan: RecoveryPlan, stands: Standing) -> list[str]:
    lines: list[str] = []
    if plan.action == "fail" and found.document is not None:
        busy = tuple(each.leaf for each in active_leaves(found.document))
        lines += [f"  no outcome: {_some(busy)}, which had begun"] if busy else []
    left = _not_undone(plan, stands)
    if left:
        then = "no compensation runs" if plan.action == "fail" else "executed a second time, under the same key"
        lines.append(f"  not undone: {compensation.names(left)}: {then}")
    if plan.action == "compensate" and stands:
        lines.append(f"  is undone:  {compensation.names(stands)}")
    return lines


def _because(found: Recovery) -> str:
    """Why nothing is to be recovered."""
    doc = found.document
    if doc is not None and doc.ended:
        return f": it is {doc.status}"
    if doc is not None and doc.pause is not None:
        return f": it is paused ({doc.pause.reason}{': ' + doc.pause.detail if doc.pause.detail else ''})"
    if found.note is not None:
        return f", but it does not go on either: {found.note}"
    healthy = "; ".join(f"{each.code}: {each.reason}" for each in found.findings[:3])
    if healthy or doc is None:
        return f": {healthy}" if healthy else ""
    return f": it is {status_text(doc.status)}, and nothing wrong was found"


def _other_way(found: Recovery, words: Wording) -> list[str]:
    """What does lead on, where a recovery is not it."""
    doc = found.document
    if doc is not None and doc.status is Status.FAILED:
        return [f"try it again: {words.command('retry', found.run_id)}"]
    if doc is not None and doc.pause is not None and doc.pause.reason == "version":
        renamed = words.command("migrate", found.run_id, "--rename", "OLD=NEW")
        return [f"see what does not fit: {words.command('why', found.run_id)}", f"if a step was renamed: {renamed}"]
    if doc is not None and doc.pause is not None:
        verb = "release" if doc.pause.reason == "poison" else "resume"
        return [f"let it go on: {words.command(verb, found.run_id)}"]
    return [] if found.note is None else [f"see why: {words.command('why', found.run_id)}"]


def done_text(action: str) -> str:
    """`it was ...`"""
    return {
        "resume": "put back into its queue, to go on",
        "retry": "put back into its queue, to run the failed step again",
        "compensate": "put back into its queue, to undo what is done and fail",
        "restart": "restarted from the beginning",
        "fail": "failed",
        "hold": "held for a person",
        "quarantine": "quarantined",
    }.get(action, action)


def _rewritten(plan: RecoveryPlan, would: str) -> str:
    """A run whose document alone is wrong: nothing of it is moved."""
    first = f"that events may have been lost {would}written into its log, then " if plan.bodies else ""
    return f"{first}its document {would}written anew from its log"


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_MAX]) or "nothing"
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} more"
