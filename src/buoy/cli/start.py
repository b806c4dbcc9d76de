"""`buoy start`: store a new run for workers to drive."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.targets import arg_option, input_option, named_target, param_option
from buoy.cli.terminal.output import print_json, results_alone, say
from buoy.cli.terminal.program import Exit, calls_option, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.config import configured_store, person
from buoy.core.explain.phrases import status_text
from buoy.operations.control import start as starting
from buoy.operations.control.start import Started
from buoy.operations.targets.spec_files import Target, called_modules, is_spec_file
from buoy.wiring.app import open_client


@click.command()
@click.argument("target", metavar="FILE.py:WORKFLOW | FILE.yaml")
@input_option
@arg_option
@param_option
@calls_option
@click.option(
    "--id", "run_id", metavar="ID", help="Run id. Starting the same id twice with the same input makes one run."
)
@shared_options
def start(
    target: str,
    given: str | None,
    pairs: tuple[str, ...],
    params: tuple[str, ...],
    prefixes: tuple[str, ...],
    run_id: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Store a new run for workers to drive, and print its id.

    \b
    Example:
      buoy start flows.py:order --arg item=lamp --id order-1
      buoy start nightly.yaml --param k=1:5

    Exit code: 0 started (or it exists already), 2 bad input, 5 store unusable.
    """
    with results_alone(as_json=as_json):
        found = named_target(target, given, pairs, params, prefixes)
        made = go(_start(found, run_id, store))
    if as_json:
        print_json({name: getattr(made, name) for name in ("run_id", "workflow", "created", "missing", "unseen")})
        return Exit.OK
    click.echo(made.run_id)
    if made.unseen is not None:
        click.echo(f"it is stored; whether a worker will take it is not known ({made.unseen})", err=True)
        return Exit.OK
    there = f"it was there already, and is {status_text(made.status)}"
    if made.missing is not None:
        file = () if is_spec_file(target) else (target.rpartition(":")[0] or target,)
        calls = [word for module in called_modules(found.workflow) for word in ("--allow-calls", module)]
        command = wording(store, local).command("worker", *file, *calls)
        say(f"{'it is queued' if made.created else there}, but {made.missing}; start one: {command}", err=True)
    elif not made.created:
        click.echo(there, err=True)
    return Exit.OK


async def _start(target: Target, run_id: str | None, store: str | None) -> Started:
    async with open_client(configured_store(store), actor=person()) as client:
        return await starting.start(client, target, run_id)
