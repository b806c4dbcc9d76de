"""`buoy retry` and `buoy jump`: bring a run back to an earlier step. What will run again is shown first."""

from __future__ import annotations

import click

from buoy.cli.output import print_json
from buoy.cli.program import Exit, confirm, connected, go, shared_options
from buoy.core.branching import Plan

_SHOWN_MAX = 20


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--from", "step", metavar="STEP", help="From this step on; default: the last one that failed.")
@click.option("--keep-answers", is_flag=True, help="Do not ask people again what they answered already.")
@click.option("--dry-run", is_flag=True, help="Only show what would run again.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@shared_options
def retry(
    run_id: str, step: str | None, keep_answers: bool, dry_run: bool, yes: bool, store: str | None, as_json: bool
) -> int:
    """Run a failed step again, with all that depends on it.

    The run goes on on a new branch of its log; nothing is removed. Steps that do not depend on it are kept. What runs
    again gets new idempotency keys, since you asked for it.

    \b
    Example:
      buoy retry order-1 --from charge --dry-run

    Exit code: 0 done, 2 not possible or declined, 5 store unusable.
    """
    return _go_back(run_id, step, "retry", keep_answers=keep_answers, dry_run=dry_run, yes=yes, store=store, js=as_json)


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("step", metavar="STEP")
@click.option("--keep-answers", is_flag=True, help="Do not ask people again what they answered already.")
@click.option("--dry-run", is_flag=True, help="Only show what would run again.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@shared_options
def jump(run_id: str, step: str, keep_answers: bool, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> int:
    """Go back to any step that ran, and go on from there.

    \b
    Example:
      buoy jump order-1 pack --keep-answers

    Exit code: 0 done, 2 not possible or declined, 5 store unusable.
    """
    return _go_back(run_id, step, "jump", keep_answers=keep_answers, dry_run=dry_run, yes=yes, store=store, js=as_json)


def _go_back(
    run_id: str,
    step: str | None,
    cause: str,
    *,
    keep_answers: bool,
    dry_run: bool,
    yes: bool,
    store: str | None,
    js: bool,
) -> int:
    plan = go(_plan(run_id, step, store, keep_answers=keep_answers))
    if not js:
        click.echo("\n".join(_lines(run_id, plan)))
    if not dry_run and not yes:
        confirm("Go on?")
    if not dry_run:
        plan = go(_do(run_id, step, cause, store, keep_answers=keep_answers))
    if js:
        print_json({"run_id": run_id, "done": not dry_run, "plan": plan, "again": plan.again})
    elif not dry_run:
        click.echo(f"run {run_id} goes on from {plan.to} on branch {plan.branch}")
    return Exit.OK


async def _plan(run_id: str, step: str | None, store: str | None, *, keep_answers: bool) -> Plan:
    async with connected(store) as client:
        return await client.plan_retry(run_id, step, keep_answers=keep_answers)


async def _do(run_id: str, step: str | None, cause: str, store: str | None, *, keep_answers: bool) -> Plan:
    async with connected(store) as client:
        if cause == "jump" and step is not None:
            return await client.jump(run_id, step, keep_answers=keep_answers)
        return await client.retry(run_id, step, keep_answers=keep_answers)


def _lines(run_id: str, plan: Plan) -> list[str]:
    lines = [
        f"run {run_id} would go on from {plan.to}, on branch {plan.branch}",
        f"  runs again: {_some(plan.again)}",
        f"  is kept:    what ended up to event {plan.cutoff_seq}" + (f", and {_some(plan.kept)}" if plan.kept else ""),
    ]
    if plan.never_undone:
        lines.append(f"  CAREFUL:    {_some(plan.never_undone)} completed and could not be undone: done a second time")
    return lines


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_MAX]) or "nothing"
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} more"
