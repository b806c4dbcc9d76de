"""`buoy reset`: lets failed or stopped jobs run again."""

from __future__ import annotations

import click

from buoy.cli.terminal.job_changes import print_changed
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import shared_options


@click.command()
@run_argument
@click.argument("names", metavar="JOB...", nargs=-1, required=True)
@shared_options
def reset(run_id: str, names: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Run failed or stopped jobs of a batch run again.

    Works while other jobs run. A completed job is run again by `buoy retry RUN --from JOB`.

    \b
    Example:
      buoy reset nightly-7c2a train_3 train_7

    Exit code: 0 done or requested, 2 not possible, 5 store unusable.
    """
    return print_changed("reset", run_id, names, None, store=store, as_json=as_json)
