"""Spec workflows: a spec as the engine's workflow: its name, its version, its parameters as input.

Invariants: the version of a spec is the hash of its stored form. So the spec that started a run always drives it. A
run's input has all its parameters, including those that the caller left out.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from buoy.core.limits import SPEC_LOG_EVENTS_MAX
from buoy.core.log import codec
from buoy.core.spec.model import DIRECTORY, Spec, SpecStep, from_stored, is_spec, spec_hash, stored_form
from buoy.core.spec.plan import SpecPlan, plan_spec
from buoy.core.spec.problems import Problems
from buoy.core.spec.reader import read_spec
from buoy.core.spec.values import chosen_parameters, written
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.spec.functions import SpecFunctions, check_inputs
from buoy.engine.spec.source import SpecSource, read_source
from buoy.errors import BadInput, NotAllowedHere, TooLarge


class SpecWorkflow(Workflow[..., Any]):
    """A workflow without code of its own."""

    def __init__(self, spec: Spec, stored: bytes | None = None) -> None:
        self.spec = spec
        self.stored = stored_form(spec) if stored is None else stored
        self.name = spec.workflow
        self.recovery = spec.recovery
        self.queue = spec.queue
        self.version = spec_hash(self.stored)
        self.is_async = False
        self.fn = self
        self.arguments = SpecArguments(self)
        self.__name__ = self.name
        self._planned: tuple[bytes, SpecPlan] | None = None

    def plan(self, stored: msgspec.Raw) -> SpecPlan:
        """What a run with this input is to do. The last plan is kept: a start needs it twice."""
        key = bytes(stored)
        if self._planned is None or self._planned[0] != key:
            given = codec.decode(stored, dict[str, Any], f"the parameters of {self.spec.name}")
            self._planned = (key, plan_spec(self.spec, given, self.spec.name))
        return self._planned[1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotAllowedHere("a spec is no function; start a run of it")


class SpecArguments(Arguments):
    """The parameters of a spec, as the engine sees arguments."""

    def __init__(self, workflow: SpecWorkflow) -> None:
        self._workflow = workflow
        names = dict.fromkeys([*(each.name for each in workflow.spec.parameters), DIRECTORY])
        self._signature = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
        )
        self._names = tuple(names)
        self._hints = {}
        self.defaults = {}  # `complete` gives an input all its parameters

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        if args:
            raise BadInput(f"the parameters of {self._workflow.spec.name} are given by name")
        return self.complete(kwargs)

    def complete(self, given: Mapping[str, object]) -> msgspec.Raw:
        """The input of a run: all parameters, and the folder that its commands count from."""
        spec = self._workflow.spec
        own = any(each.name == DIRECTORY for each in spec.parameters)
        here = {} if own else {DIRECTORY: str(Path.cwd())}
        return codec.encode(written(chosen_parameters(spec, {**here, **given})), "the parameters")

    def decode(self, raw: msgspec.Raw) -> tuple[list[Any], dict[str, Any]]:
        """Checks an input by planning the run: nothing is stored that could not be run."""
        too_long = _too_long(self._workflow.plan(raw))
        if too_long is not None:
            raise TooLarge(too_long)
        return [], {}


def _too_long(plan: SpecPlan) -> str | None:
    """Why a run of this plan would not fit into a log, if it would not."""
    least = sum(_events_of(each.step) for each in plan.steps)
    # Claims, pauses, retries and the end want some room, too.
    if least <= SPEC_LOG_EVENTS_MAX - max(1_000, least // 10):
        return None
    return (
        f"{len(plan.steps):,} steps make at least {least:,} events, and the log of a spec's run holds "
        f"{SPEC_LOG_EVENTS_MAX:,}; split the spec into several"
    )


def _events_of(step: SpecStep) -> int:
    """Each step and module begins and ends; a question is asked and answered on top of that."""
    return 2 * (1 + len(step.modules) + sum(action.ask is not None for action in step.actions))


def load_spec(
    path: str | Path, *, calls: SpecFunctions | tuple[str, ...] | None = None, given: Mapping[str, object] | None = None
) -> SpecWorkflow:
    """The spec in a YAML or JSON file, checked whole; `BadSpec` has everything that is wrong.

    `calls`: also check that its functions are in these modules and fit. `given`: parameters to check it with.
    """
    with _collector_at_rest():
        return spec_of(
            read_source(Path(path)), calls=SpecFunctions(calls) if isinstance(calls, tuple) else calls, given=given
        )


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """A large spec is a million objects that all stay: looking for garbage among them takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def spec_of(
    source: SpecSource, *, calls: SpecFunctions | None, given: Mapping[str, object] | None = None
) -> SpecWorkflow:
    problems = Problems()
    spec = read_spec(source.data, problems)
    if spec is None or not spec.steps:
        problems.check(source.name, source.line_of)
    assert spec is not None
    workflow = SpecWorkflow(spec)
    if calls is not None:
        _check_calls(spec, calls, problems)
    raw = SpecArguments(workflow).complete(given or {})
    decoded = msgspec.json.decode(raw)
    plan = plan_spec(spec, decoded, source.name, source.line_of, problems)
    workflow._planned = (bytes(raw), plan)
    folder = Path(str(decoded[DIRECTORY]))
    for path, place in plan.outside.items():
        if not (folder / path).exists():
            problems.add(place, f"no step makes file {path!r}, and it is not in {folder}")
    if too_long := _too_long(plan):
        problems.add(("steps",), too_long)
    problems.check(source.name, source.line_of)
    return workflow


def _check_calls(spec: Spec, calls: SpecFunctions, problems: Problems) -> None:
    for number, step in enumerate(spec.steps):
        for place, action in enumerate(step.actions):
            if action.call is None:
                continue
            here = ("steps", number, "modules", place, "call") if step.modules else ("steps", number, "call")
            try:
                check_inputs(calls.find(action.call), action.call, action.given)
            except (BadInput, NotAllowedHere) as error:
                problems.add(here, str(error))


def stored_workflow(data: bytes, version: str) -> SpecWorkflow:
    """The workflow of a stored definition."""
    return SpecWorkflow(from_stored(data, version), data)


__all__ = ["SpecArguments", "SpecWorkflow", "is_spec", "load_spec", "spec_of", "stored_workflow"]
