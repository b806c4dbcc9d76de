"""`buoy validate`: checks a whole spec file, and prints the size of its plan."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.targets import param_option
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, calls_option, shared_options
from buoy.core.log.wording import counted
from buoy.errors import BadSpec
from buoy.operations.targets.spec_files import allowed_calls, check_spec_file


@click.command()
@click.argument("file", metavar="FILE.yaml")
@param_option
@calls_option
@shared_options
def validate(file: str, params: tuple[str, ...], prefixes: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Check a spec file: print every problem with its line, or the size of its plan. Needs no store.

    \b
    Example:
      buoy validate nightly.yaml --param k=1:5

    Exit code: 0 valid, 2 the spec has problems.
    """
    try:
        found = check_spec_file(file, params, allowed_calls(prefixes))
    except BadSpec as error:
        if as_json:
            print_json({"ok": False, "count": error.count, "problems": [each._asdict() for each in error.problems]})
        else:
            say(str(error), err=True)
            say(f"{counted(error.count, 'problem')}; nothing was stored", err=True)
        return Exit.BAD_INPUT
    if as_json:
        facts = {name: getattr(found, name) for name in ("name", "version", "steps", "edges", "calls")}
        print_json({"ok": True, **facts, "warnings": [each._asdict() for each in found.warnings]})
        return Exit.OK
    say(f"{file} is sound: {found.name}, {counted(found.steps, 'step')}, dependencies: {found.edges}")
    say(f"version {found.version}, recovery {found.recovery}, queue {found.queue}")
    if found.calls:
        say(f"calls {', '.join(found.calls)}")
    for each in found.warnings:
        say(f"warning: {each}", err=True)
    return Exit.OK
