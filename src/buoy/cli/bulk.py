"""`buoy bulk`: one action on every run that a filter chooses."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.runs import run_filters
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.limits import BULK_PART_MAX
from buoy.core.log.wording import counted
from buoy.operations.control.bulk import ACTIONS, BulkAction, BulkOrder, BulkPart, BulkPreview, apply_part, preview
from buoy.operations.inspect.runs import RunFilter


@click.command()
@click.argument("action", type=click.Choice(ACTIONS))
@run_filters
@click.option("--reason", metavar="TEXT", help="Reason, for the record. Of pause and cancel.")
@click.option("--rate", type=click.FloatRange(0.01, 10_000), help="Runs per second at most.")
@click.option("--yes", is_flag=True, help="Act. Without it the command only counts.")
@shared_options
def bulk(
    action: BulkAction,
    filters: RunFilter,
    reason: str | None,
    rate: float | None,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Count the runs that a filter chooses, and with --yes act on each: pause, resume, cancel, retry, recover, release.

    Runs that change after the count are left alone. A command that was stopped half-way can be given again.

    \b
    Example:
      buoy bulk cancel --status awaiting_input --workflow order --older-than 30d --yes

    Exit code: 0 done, 1 some runs refused, 2 bad input, 5 store unusable.
    """
    order = BulkOrder(action=action, runs=filters, reason=reason)
    shown, parts = go(_act(order, rate, store, yes=yes))
    refused = [each for part in parts for each in part.refused]
    done = sum(part.done for part in parts)
    if as_json:
        print_json({"action": action, "count": shown.count, "done": done, "refused": refused, "dry_run": not yes})
    elif not yes:
        names = f": {', '.join(shown.sample)}" if shown.sample else ""
        say(f"{action} would touch {counted(shown.count, 'run')}{names}")
        if shown.count:
            say("add --yes to act", err=True)
    else:
        say(f"{action}: {counted(done, 'run')} done, {len(refused):,} refused")
        for each in refused:
            say(f"{each.run_id}: {each.why}", err=True)
    return Exit.FAILED if refused else Exit.OK


async def _act(
    order: BulkOrder, rate: float | None, store: str | None, *, yes: bool
) -> tuple[BulkPreview, list[BulkPart]]:
    async with connected(store) as client:
        shown = await preview(client, order)
        parts: list[BulkPart] = []
        while yes and (not parts or parts[-1].cursor is not None):
            cursor = parts[-1].cursor if parts else None
            parts.append(await apply_part(client, shown.token, cursor=cursor, limit=BULK_PART_MAX, rate=rate))
        return shown, parts
