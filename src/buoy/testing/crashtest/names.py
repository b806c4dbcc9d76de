"""Names in options: whether the steps that stubs and patterns speak of are there, before and after the runs."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from buoy.core.spec.plan import Planned
from buoy.core.spec.problems import names
from buoy.engine.authoring.definitions import Step, Workflow
from buoy.engine.spec.runtime import Work
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput
from buoy.testing.crashtest.notes import Note
from buoy.testing.local_host import neighbours


def check_stubs(workflow: Workflow[..., Any], stored: msgspec.Raw, stubs: Mapping[str, Any]) -> None:
    """Refuses a stub for an unknown step: the step that was meant would really be executed."""
    if not stubs:
        return
    known = dict.fromkeys(
        _of_plan(workflow.plan(stored).steps) if isinstance(workflow, SpecWorkflow) else _here(workflow)
    )
    for name in stubs:
        if not any(fnmatchcase(name, each) for each in known):
            raise BadInput(f"there is no step {name!r} to stub; {names(known, name)}")


def _of_plan(steps: Iterable[Planned]) -> Iterator[str]:
    """A question has no body, so it cannot be stubbed: the script answers it."""
    for each in steps:
        if each.step.modules:
            yield from (action.id for action in each.step.modules if action.ask is None)
        elif each.step.ask is None:
            yield each.id


def _here(workflow: Workflow[..., Any]) -> Iterator[str]:
    """The steps that this process has made, those of the workflow's own module first; of specs, with any parameters."""
    yield from (each.name for each in getattr(workflow.fn, "__globals__", {}).values() if isinstance(each, Step))
    # By its type: isinstance would wake proxies.
    found = (each for each in gc.get_objects() if issubclass(type(each), Step) and not issubclass(type(each), Work))
    yield from sorted(each.name for each in found if hasattr(each, "name"))
    for spec in neighbours(workflow)[0]:
        if isinstance(spec, SpecWorkflow):
            yield from (re.sub(r"\{[^}]*\}", "*", action.id) for step in spec.spec.steps for action in step.actions)


def ran_in(notes: Iterable[Note]) -> set[str]:
    """The steps whose bodies began, or would have."""
    return {note.step for note in notes if note.what in ("body", "stubbed")}


def meant_nothing(stubs: Iterable[str], repeatable: Sequence[str], ran: set[str]) -> Iterator[str]:
    """The stubs and patterns that fitted none of the steps that ran, each as a sentence."""
    steps = f"the steps that ran: {', '.join(sorted(ran)) or 'none'}"
    for name in stubs:
        if name not in ran:
            yield f"the stub of {name} was never used; {steps}"
    for pattern in repeatable:
        if not any(fnmatchcase(each, pattern) for each in ran):
            yield f"repeatable {pattern!r} matched no step; {steps}"
