"""`buoy jump`: go back to an earlier step. What will run again is shown first."""

from __future__ import annotations

import click

from buoy.cli.terminal.lines.rewinds import go_back
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import shared_options
from buoy.operations.control.rewind import Rewind


@click.command()
@run_argument
@click.argument("step", metavar="STEP")
@click.option("--keep-answers", is_flag=True, help="Keep answers that people gave already.")
@click.option("--dedupe", metavar="ID", help="Dedupe id. A second request with the same id has no effect.")
@click.option("--dry-run", is_flag=True, help="Only show what would run again.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def jump(
    run_id: str,
    step: str,
    keep_answers: bool,
    dedupe: str | None,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Go back to any step that ran, and continue from there.

    \b
    Example:
      buoy jump order-1 pack --keep-answers

    Exit code: 0 done, 2 not possible or declined, 5 store unusable.
    """
    order = Rewind(run_id, step, "jump", keep_answers, dedupe=dedupe)
    return go_back(order, dry_run=dry_run, yes=yes, store=store, as_json=as_json)
