"""Target options: the options that name what to run, with its parameters and allowed functions."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import say
from buoy.operations.targets.spec_files import Target, allowed_calls, find_target

param_option = click.option(
    "--param",
    "params",
    metavar="NAME=VALUE",
    multiple=True,
    help="One parameter of a spec; may be repeated. Write a list as JSON: k='[1, 5]'.",
)
input_option = click.option(
    "--input",
    "given",
    metavar="JSON",
    help="Arguments by name, as a JSON object; @FILE reads a file, @- stdin.",
)
arg_option = click.option(
    "--arg",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="One argument; may be repeated. Write a list as JSON: ids='[1, 5]'.",
)


def named_target(
    target: str, given: str | None, pairs: tuple[str, ...], params: tuple[str, ...], prefixes: tuple[str, ...]
) -> Target:
    """The workflow or spec that the options name. What is odd about a spec is said on standard error."""
    found = find_target(target, given, pairs, params, allowed_calls(prefixes))
    for each in found.warnings:
        say(f"warning: {each}", err=True)
    return found
