"""Rewind lines: shows what a retry or a jump would do, asks, and does it."""

from __future__ import annotations

from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, confirm, connected, go
from buoy.core.remedy.rewind import RewindPlan
from buoy.operations.control.rewind import Rewind, RewindDone, plan_rewind, rewind

_SHOWN_MAX = 20


def go_back(order: Rewind, *, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> Exit:
    """Shows the plan, asks, and applies it unless `dry_run`."""
    found = go(_plan(order, store))
    if not as_json:
        say("\n".join(_lines(order, found.plan)))
    if not dry_run and not yes:
        confirm("Continue?")
    if not dry_run:
        found = go(_do(order, store))
    if as_json:
        print_json(found)
    elif found.done:
        say(f"run {order.run_id} continues from {found.plan.to} on branch {found.plan.branch}")
    return Exit.OK


async def _plan(order: Rewind, store: str | None) -> RewindDone:
    async with connected(store) as client:
        return await plan_rewind(client, order)


async def _do(order: Rewind, store: str | None) -> RewindDone:
    async with connected(store) as client:
        return await rewind(client, order)


def _lines(order: Rewind, plan: RewindPlan) -> list[str]:
    kept = f"what ended up to event {plan.cutoff_seq}" + (f", and {_some(plan.kept)}" if plan.kept else "")
    if plan.definition:
        kept = "all that completed before" + (f", and {_some(plan.spared)}" if plan.spared else "")
    lines = [
        f"run {order.run_id} would continue from {plan.to}, on branch {plan.branch}",
        f"  runs again: {_some(plan.again)}",
        *([f"  continues:  {_some(plan.under_way)}, which started and has no outcome yet"] if plan.under_way else []),
        f"  is kept:    {kept}",
    ]
    if plan.definition:
        stored = "as stored at the start of the run; later changes of the file have no effect (see --spec)"
        lines.append(f"  by spec:    {plan.definition}, {stored if order.file is None else order.file}")
    if plan.never_undone:
        lines.append(f"  CAREFUL:    {_some(plan.never_undone)} completed and could not be undone: done a second time")
    return lines


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_MAX]) or "nothing"
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} more"
