"""References: every place of a step where a parameter, another step or a module is named.

Invariant: what is named here is all that a step can ever refer to, so the plan has every edge before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec

from buoy.core.log.questions import Json
from buoy.core.spec.condition import parse_when, walk
from buoy.core.spec.model import Action, Place, SpecStep
from buoy.core.spec.template import Param, Ref, Segment, Template, params_of, parse, segment_of, strings_in


class Use(msgspec.Struct, frozen=True):
    """One template. `params`: all parameters in it; `settled`: those that must have one value here."""

    place: Place
    params: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    # The step that is named, with parameters in its name; `refers`: for the sake of its result.
    step: Segment | None = None
    refers: bool = False


def uses_of(step: SpecStep, place: Place) -> Iterator[Use]:
    """All templates of a step. Needs without parameters are none: there may be a million of them."""
    for number, text in enumerate(step.needs or ()):
        if "{" not in text:
            continue
        template = parse(text)
        yield Use((*place, "needs", number), tuple(template.params()), (), segment_of(template))
    for key, paths in (("inputs", step.inputs), ("outputs", step.outputs)):
        for number, text in enumerate(paths):
            params = tuple(parse(text).params())
            if params:
                yield Use((*place, key, number), params, params if key == "outputs" else ())
    if step.when is not None:
        for each in walk(parse_when(step.when)):
            yield from _of_part(each, (*place, "when"))
    for number, action in enumerate(step.actions):
        here = (*place, "modules", number) if step.modules else place
        for where, text in texts_of(action, here):
            if "{" in text:
                yield from _of_template(parse(text), where)


def is_plain(step: SpecStep) -> bool:
    """Whether it is a command that refers to nothing but its needs. A graph may have 100,000 of them."""
    refers = step.given or step.modules or step.ask or step.when or step.inputs or step.outputs
    return not refers and step.run is not None and "{" not in step.run


def texts_of(action: Action, place: Place) -> Iterator[tuple[Place, str]]:
    """Every text of an action that is a template, with its place."""
    if action.run is not None:
        yield (*place, "run"), action.run
    if action.ask is not None:
        yield (*place, "ask", "title"), action.ask.title
        for number, option in enumerate(action.ask.options):
            yield (*place, "ask", "options", number), option
        if action.ask.detail is not None:
            yield (*place, "ask", "detail"), action.ask.detail
    for name, value in action.given.items():
        for text in strings_in(cast(Json, value)):
            yield (*place, "with", name), text


def _of_template(template: Template, place: Place) -> Iterator[Use]:
    for part in template.parts:
        if not isinstance(part, str):
            yield from _of_part(part, place)


def _of_part(part: Param | Ref, place: Place) -> Iterator[Use]:
    if isinstance(part, Param):
        yield Use(place, (part.name,), (part.name,))
        return
    params = tuple(params_of(part))
    match part.root:
        case "steps":
            # Parameters behind the step's name choose within one result, so they must be settled.
            inner = tuple(each.name for segment in part.path[1:] for each in segment if isinstance(each, Param))
            yield Use(place, params, inner, part.path[0], True)
        case "parameters":
            name = "".join(str(piece) for piece in part.path[0])
            yield Use(place, (name,), (name,))
        case _:
            yield Use(place, params, params)


def module_problems(step: SpecStep, place: Place) -> Iterator[tuple[Place, str]]:
    """References to modules that do not come before their reader."""
    for number, action in enumerate(step.actions):
        here = (*place, "modules", number) if step.modules else place
        earlier = [each.id for each in step.modules[:number]]
        refs = [(where, ref) for where, text in texts_of(action, here) if "{" in text for ref in parse(text).refs()]
        for where, ref in refs:
            name = "".join(str(piece) for piece in ref.path[0])
            if ref.root == "modules" and name not in earlier:
                yield where, f"no module {name!r} comes before this one in step {step.id!r}"
    if step.when is not None and any(
        isinstance(each, Ref) and each.root == "modules" for each in walk(parse_when(step.when))
    ):
        yield (*place, "when"), "modules have not run yet when a step's condition is looked at"
