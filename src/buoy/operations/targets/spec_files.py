"""Spec files: reads a spec file with its parameters and allowed functions, and finds any target."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from buoy.config import load_settings
from buoy.core.spec.problems import place_text
from buoy.core.spec.warnings import warnings_of
from buoy.engine.spec.functions import SpecFunctions
from buoy.engine.spec.source import read_source
from buoy.engine.spec.workflow import SpecArguments, SpecWorkflow, load_spec
from buoy.errors import BadInput, SpecProblem
from buoy.operations.targets.inputs import named_texts, no_input, parse_json, stored_input
from buoy.operations.targets.workflow_files import AnyWorkflow, find_workflow

_ENDINGS = (".yaml", ".yml", ".json")


class Target(msgspec.Struct, frozen=True):
    """What is to be run: the workflow or spec, its input if one was given, and what is odd about the spec."""

    workflow: AnyWorkflow
    stored: msgspec.Raw | None
    warnings: tuple[SpecProblem, ...] = ()
    # The functions that specs may call here.
    calls: tuple[str, ...] = ()

    @property
    def input(self) -> msgspec.Raw:
        """What a new run gets: the given input, or the one of a workflow that is started without any."""
        return self.stored or no_input(self.workflow.arguments)


class CheckedSpec(msgspec.Struct, frozen=True):
    """What a run of a sound spec would be."""

    name: str
    version: str
    steps: int
    edges: int
    calls: tuple[str, ...]
    recovery: str
    queue: str
    warnings: tuple[SpecProblem, ...]


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
    return load_spec(target, calls=SpecFunctions(calls), given=parameters(params))


def spec_warnings(target: str, spec: SpecWorkflow) -> list[SpecProblem]:
    """Valid but suspicious parts of that file, each with its line."""
    found = warnings_of(spec.spec)
    if not found:
        return []
    line_of = read_source(Path(target)).line_of
    return [SpecProblem(target, line_of(place), place_text(place), text) for place, text in found]


def check_spec_file(file: str, params: tuple[str, ...], calls: tuple[str, ...]) -> CheckedSpec:
    """What the spec amounts to with these parameters; `BadSpec` has every problem."""
    workflow = read_spec_file(file, params, calls)
    assert isinstance(workflow.arguments, SpecArguments)
    plan = workflow.plan(workflow.arguments.complete(parameters(params)))
    return CheckedSpec(
        name=workflow.spec.name,
        version=workflow.version,
        steps=len(plan.steps),
        edges=sum(map(len, plan.needs)),
        calls=tuple(sorted(workflow.spec.calls())),
        recovery=workflow.recovery,
        queue=workflow.queue,
        warnings=tuple(spec_warnings(file, workflow)),
    )


def find_target(
    target: str, given: str | None, pairs: tuple[str, ...], params: tuple[str, ...], calls: tuple[str, ...]
) -> Target:
    """The workflow or spec that was named, and its input if one was given."""
    if not is_spec_file(target):
        if params:
            raise BadInput("--param is for spec files; arguments of a workflow are given with --arg or --input")
        workflow = find_workflow(target)
        return Target(workflow, stored_input(workflow.arguments, given, pairs), calls=calls)
    if given is not None or pairs:
        raise BadInput("--arg and --input are for workflows in Python; parameters of a spec are given with --param")
    spec = read_spec_file(target, params, calls)
    assert isinstance(spec.arguments, SpecArguments)
    stored = spec.arguments.complete(parameters(params)) if params else None
    return Target(spec, stored, tuple(spec_warnings(target, spec)), calls)


def called_modules(workflow: AnyWorkflow) -> tuple[str, ...]:
    """The modules whose functions a spec calls: what a worker must be allowed to call."""
    called = workflow.spec.calls() if isinstance(workflow, SpecWorkflow) else set()
    return tuple(sorted({each.partition(":")[0] for each in called}))
