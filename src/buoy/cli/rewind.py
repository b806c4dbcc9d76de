"""`buoy retry` and `buoy jump`: bring a run back to an earlier step. What will run again is shown first."""

from __future__ import annotations

import click
import msgspec

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, confirm, connected, go, shared_options
from buoy.cli.terminal.run_ids import run_argument
from buoy.core.log import events as e
from buoy.core.remedy.rewind import Plan
from buoy.engine.client.client import Client
from buoy.engine.spec.workflow import SpecWorkflow, load_spec

_SHOWN_MAX = 20


@click.command()
@run_argument
@click.option("--from", "step", metavar="STEP", help="From this step on; default: the last one that failed.")
@click.option("--keep-answers", is_flag=True, help="Do not ask people again what they answered already.")
@click.option("--spec", "file", metavar="FILE", help="For a run of a spec: go on with this file, if it fits.")
@click.option("--dry-run", is_flag=True, help="Only show what would run again.")
@click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
@shared_options
def retry(
    run_id: str,
    step: str | None,
    keep_answers: bool,
    file: str | None,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Run a failed step again, with all that depends on it.

    The run goes on on a new branch of its log; nothing is removed. Steps that do not depend on it are kept. What runs
    again gets new idempotency keys, since you asked for it. A run of a spec goes on with the spec as it was stored at
    its start; --spec binds it to a changed file, which is refused if it does not fit what the run has done.

    \b
    Example:
      buoy retry order-1 --from charge --dry-run
      buoy retry nightly-1 --spec nightly.yaml

    Exit code: 0 done, 2 not possible or declined, 5 store unusable.
    """
    order = Order(run_id, step, "retry", keep_answers, file)
    return _go_back(order, dry_run=dry_run, yes=yes, store=store, js=as_json)


@click.command()
@run_argument
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
    order = Order(run_id, step, "jump", keep_answers)
    return _go_back(order, dry_run=dry_run, yes=yes, store=store, js=as_json)


class Order(msgspec.Struct, frozen=True):
    """What was asked for."""

    run_id: str
    step: str | None
    cause: str
    keep_answers: bool
    file: str | None = None


def _go_back(order: Order, *, dry_run: bool, yes: bool, store: str | None, js: bool) -> int:
    run_id = order.run_id
    plan = go(_plan(order, store))
    if not js:
        click.echo("\n".join(_lines(order, plan)))
    if not dry_run and not yes:
        confirm("Go on?")
    if not dry_run:
        plan = go(_do(order, store))
    if js:
        print_json({"run_id": run_id, "done": not dry_run, "plan": plan, "again": plan.again})
    elif not dry_run:
        click.echo(f"run {run_id} goes on from {plan.to} on branch {plan.branch}")
    return Exit.OK


async def _plan(order: Order, store: str | None) -> Plan:
    async with connected(store) as client:
        spec = None if order.file is None else await spec_for(client, order.run_id, order.file)
        return await client.plan_retry(order.run_id, order.step, keep_answers=order.keep_answers, spec=spec)


async def _do(order: Order, store: str | None) -> Plan:
    async with connected(store) as client:
        if order.cause == "jump" and order.step is not None:
            return await client.jump(order.run_id, order.step, keep_answers=order.keep_answers)
        spec = None if order.file is None else await spec_for(client, order.run_id, order.file)
        return await client.retry(order.run_id, order.step, keep_answers=order.keep_answers, spec=spec)


async def spec_for(client: Client, run_id: str | None, file: str) -> SpecWorkflow:
    """The spec in a file, checked with the parameters that the run was started with."""
    if run_id is None:
        return load_spec(file)
    log = await client.store.events((await client.record(run_id)).document.run_id, limit=1)
    created = log[0].body if log else None
    given = msgspec.json.decode(created.input) if isinstance(created, e.WorkflowCreated) else None
    return load_spec(file, given=given if isinstance(given, dict) else None)


def _lines(order: Order, plan: Plan) -> list[str]:
    kept = f"what ended up to event {plan.cutoff_seq}" + (f", and {_some(plan.kept)}" if plan.kept else "")
    if plan.definition:
        kept = "all that completed before" + (f", and {_some(plan.spared)}" if plan.spared else "")
    lines = [
        f"run {order.run_id} would go on from {plan.to}, on branch {plan.branch}",
        f"  runs again: {_some(plan.again)}",
        *([f"  goes on:    {_some(plan.under_way)}, which had begun and has no outcome"] if plan.under_way else []),
        f"  is kept:    {kept}",
    ]
    if plan.definition:
        stored = "as it was stored when the run was started; changes of the file since do not count (see --spec)"
        lines.append(f"  by spec:    {plan.definition}, {stored if order.file is None else order.file}")
    if plan.never_undone:
        lines.append(f"  CAREFUL:    {_some(plan.never_undone)} completed and could not be undone: done a second time")
    return lines


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_MAX]) or "nothing"
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} more"
