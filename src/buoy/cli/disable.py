"""`buoy disable`: takes jobs out of a batch run."""

from __future__ import annotations

import click

from buoy.cli.terminal.job_changes import print_changed
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import shared_options


@click.command()
@run_argument
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@shared_options
def disable(run_id: str, names: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Take jobs out of a batch run: they do not run, and jobs that need them run without them.

    A job that runs is stopped. `buoy reset` takes this back for a job that is disabled.

    \b
    Example:
      buoy disable nightly-7c2a train_3 train_7

    Exit code: 0 done or requested, 2 not possible, 5 store unusable.
    """
    return print_changed("disable", run_id, names, None, store=store, as_json=as_json)
