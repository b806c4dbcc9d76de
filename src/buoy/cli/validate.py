"""`buoy validate`: checks a spec file whole, and says what it amounts to."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, calls_option, shared_options
from buoy.cli.terminal.spec_targets import (
    allowed_calls,
    param_option,
    parameters,
    read_spec_file,
    spec_warnings,
)
from buoy.core.log.wording import counted
from buoy.engine.spec.workflow import SpecArguments
from buoy.errors import BadSpec


@click.command()
@click.argument("file", metavar="FILE.yaml")
@param_option
@calls_option
@shared_options
def validate(file: str, params: tuple[str, ...], prefixes: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Check a spec file: every problem with its line, or what a run of it would be. No store is touched.

    \b
    Example:
      buoy validate nightly.yaml --param k=1:5

    Exit code: 0 sound, 2 something is wrong with it.
    """
    try:
        workflow = read_spec_file(file, params, allowed_calls(prefixes))
    except BadSpec as error:
        if as_json:
            print_json({"ok": False, "count": error.count, "problems": [each._asdict() for each in error.problems]})
        else:
            click.echo(str(error), err=True)
            click.echo(f"{counted(error.count, 'problem')}; nothing was stored", err=True)
        return Exit.BAD_INPUT
    assert isinstance(workflow.arguments, SpecArguments)
    plan = workflow.plan(workflow.arguments.complete(parameters(params)))
    steps, edges = len(plan.steps), sum(map(len, plan.needs))
    calls = sorted(workflow.spec.calls())
    odd = spec_warnings(file, workflow)
    if as_json:
        facts = {
            "name": workflow.spec.name,
            "version": workflow.version,
            "steps": steps,
            "edges": edges,
            "calls": calls,
        }
        print_json({"ok": True, **facts, "warnings": [each._asdict() for each in odd]})
        return Exit.OK
    click.echo(f"{file} is sound: {workflow.spec.name}, {counted(steps, 'step')}, dependencies: {edges}")
    click.echo(f"version {workflow.version}, recovery {workflow.recovery}, queue {workflow.queue}")
    if calls:
        click.echo(f"calls {', '.join(calls)}")
    for each in odd:
        click.echo(f"warning: {each}", err=True)
    return Exit.OK
