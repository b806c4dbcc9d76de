"""`buoy submit`: store a batch run, whose commands runners take as jobs."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json, results_alone
from buoy.cli.terminal.program import Exit, calls_option, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.cli.terminal.target_options import named_target, param_option
from buoy.config import configured_store, person
from buoy.core.batch.resources import group_name
from buoy.core.log.wording import counted
from buoy.operations.batch import submit as submitting
from buoy.operations.batch.submit import Submitted
from buoy.operations.targets.spec_files import Target
from buoy.wiring import open_client


@click.command()
@click.argument("spec", metavar="FILE.yaml")
@param_option
@calls_option
@click.option(
    "--id", "run_id", metavar="ID", help="Run id. Submitting the same id twice with the same input is one run."
)
@shared_options
def submit(
    spec: str, params: tuple[str, ...], prefixes: tuple[str, ...], run_id: str | None, store: str | None, as_json: bool
) -> int:
    """Store a batch run of a spec, and print its id.

    Its commands are jobs. Start `buoy runner --run ID` on each machine that is to run some of them.

    \b
    Example:
      buoy submit nightly.yaml --param k=1:500

    Exit code: 0 submitted (or it exists already), 2 bad input, 5 store unusable.
    """
    with results_alone(as_json=as_json):
        found = named_target(spec, None, (), params, prefixes)
        made = go(_submit(found, run_id, store))
    if as_json:
        groups = [
            {"group": group_name(each.key.resources), "deferred": each.key.has_dependencies, "jobs": len(each.jobs)}
            for each in made.groups
        ]
        print_json({"run_id": made.run_id, "created": made.created, "jobs": made.jobs, "groups": groups})
        return Exit.OK
    click.echo(made.run_id)
    runner = wording(store, local).command("runner", "--run", made.run_id)
    there = "" if made.created else "it was there already; "
    click.echo(f"{there}{counted(made.jobs, 'job')}; run them on each machine: {runner}", err=True)
    return Exit.OK


async def _submit(target: Target, run_id: str | None, store: str | None) -> Submitted:
    async with open_client(configured_store(store), actor=person()) as client:
        return await submitting.submit(client, target, run_id)
