"""Spec targets: spec files on the command line, with the parameters and the allowed functions that go with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from buoy.cli.terminal.inputs import named_texts, parse_json, stored_input
from buoy.cli.terminal.workflow_files import AnyWorkflow, find_workflow
from buoy.config import load_settings
from buoy.core.spec.problems import place_text
from buoy.core.spec.warnings import warnings_of
from buoy.engine.spec.functions import Calls
from buoy.engine.spec.source import read_source
from buoy.engine.spec.workflow import SpecArguments, SpecWorkflow, load_spec
from buoy.errors import BadInput, SpecProblem

F = TypeVar("F", bound=Callable[..., Any])

_ENDINGS = (".yaml", ".yml", ".json")

param_option = click.option(
    "--param",
    "params",
    metavar="NAME=VALUE",
    multiple=True,
    help="One parameter of a spec; repeat for others. A list is JSON: k='[1, 5]'.",
)


def is_spec_file(target: str) -> bool:
    return target.endswith(_ENDINGS)


def allowed_calls(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """What the options and the configuration allow. Modules in the current folder can be imported then, too."""
    found = tuple(dict.fromkeys((*prefixes, *load_settings().worker.calls)))
    here = str(Path.cwd())
    if found and here not in sys.path:
        sys.path.insert(0, here)
    return found


def parameters(params: tuple[str, ...]) -> dict[str, object]:
    """`--param k=1:3`: a JSON value, or else a text."""
    found: dict[str, object] = {}
    for name, text in named_texts(params, "--param").items():
        try:
            found[name] = parse_json(text, "a value")
        except BadInput:
            found[name] = text
    return found


def read_spec_file(target: str, params: tuple[str, ...], calls: tuple[str, ...]) -> SpecWorkflow:
    """The spec in that file, checked whole with these parameters."""
    return load_spec(target, calls=Calls(calls), given=parameters(params))


def spec_warnings(target: str, spec: SpecWorkflow) -> list[SpecProblem]:
    """What is sound in that file and probably not what was meant, each with its line."""
    found = warnings_of(spec.spec)
    if not found:
        return []
    line_of = read_source(Path(target)).line_of
    return [SpecProblem(target, line_of(place), place_text(place), text) for place, text in found]


def _warn(target: str, spec: SpecWorkflow) -> None:
    for each in spec_warnings(target, spec):
        click.echo(f"warning: {each}", err=True)


def find_target(
    target: str, given: str | None, pairs: tuple[str, ...], params: tuple[str, ...], calls: tuple[str, ...]
) -> tuple[AnyWorkflow, msgspec.Raw | None]:
    """The workflow or spec that was named, and its input if one was given."""
    if not is_spec_file(target):
        if params:
            raise BadInput("--param is for spec files; arguments of a workflow are given with --arg or --input")
        workflow = find_workflow(target)
        return workflow, stored_input(workflow.arguments, given, pairs)
    if given is not None or pairs:
        raise BadInput("--arg and --input are for workflows in Python; parameters of a spec are given with --param")
    spec = read_spec_file(target, params, calls)
    _warn(target, spec)
    assert isinstance(spec.arguments, SpecArguments)
    return spec, spec.arguments.complete(parameters(params)) if params else None
