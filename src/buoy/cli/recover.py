"""`buoy recover`: check a run, show the plan of its recovery, and apply it."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.recovery_lines import recovery_lines
from buoy.cli.terminal.render import local
from buoy.cli.terminal.run_ids import run_argument
from buoy.operations import recover as recovery
from buoy.operations.recover import Recovered


@click.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Only show the branch, what is kept and what would run again.")
@click.option("--plan", metavar="ID", help="Apply only the plan with this id: 'plan.id' of --dry-run --json.")
@shared_options
def recover(run_id: str, dry_run: bool, plan: str | None, store: str | None, as_json: bool) -> int:
    """Check a run, and recover it if something is wrong with it.

    No event is removed: a recovery that must hide events continues the run on a new branch of its log. Completed steps
    that are kept are not executed again. A run that a live process drives is not changed.

    \b
    Example:
      buoy recover order-1 --dry-run

    Exit code: 0 healthy or recovered, 1 not recovered, 2 no such run or another plan than --plan, 5 store unusable.
    """
    found = go(_recover(run_id, store, dry_run=dry_run, plan=plan))
    if as_json:
        print_json(found.view())
    else:
        click.echo("\n".join(recovery_lines(found, wording(store, local))))
    return Exit.FAILED if found.recovery.error is not None else Exit.OK


async def _recover(run_id: str, store: str | None, *, dry_run: bool, plan: str | None) -> Recovered:
    async with connected(store) as client:
        return await recovery.recover(client, run_id, dry_run=dry_run, shown=plan)
