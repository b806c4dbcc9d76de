"""`buoy retry`: run a failed step again. What will run again is shown first."""

from __future__ import annotations

import click

from buoy.cli.terminal.lines.rewinds import go_back
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import shared_options
from buoy.operations.control.rewind import Rewind


@click.command()
@run_argument
@click.option("--from", "step", metavar="STEP", help="Start from this step. [the last one that failed]")
@click.option("--keep-answers", is_flag=True, help="Keep answers that people gave already.")
@click.option("--spec", "file", metavar="FILE", help="For a run of a spec: continue with this file, if it fits.")
@click.option("--dedupe", metavar="ID", help="Dedupe id. A second request with the same id has no effect.")
@click.option("--dry-run", is_flag=True, help="Only show what would run again.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@shared_options
def retry(
    run_id: str,
    step: str | None,
    keep_answers: bool,
    file: str | None,
    dedupe: str | None,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Run a failed step again, with all that depends on it.

    The run continues on a new branch of its log; no event is removed. Steps that do not depend on the failed one are
    kept. Steps that run again get new idempotency keys. A run of a spec keeps the spec that was stored at its start;
    --spec binds it to a changed file, if the file fits what the run has done.

    \b
    Example:
      buoy retry order-1 --from charge --dry-run
      buoy retry nightly-1 --spec nightly.yaml

    Exit code: 0 done, 2 not possible or declined, 5 store unusable.
    """
    order = Rewind(run_id, step, "retry", keep_answers, file, dedupe)
    return go_back(order, dry_run=dry_run, yes=yes, store=store, as_json=as_json)
