"""Spec reading: plain data (from YAML or JSON) to a `Spec`, or every reason why not.

Invariants: everything is looked at, so that a person sees all problems at once; an unknown key is a problem, since a
setting that is silently ignored is worse than none. What needs parameters or other steps is checked by
`core.spec_plan`.
"""

from __future__ import annotations

import re
from typing import Any, cast

from buoy.core.limits import NAME_CHARS_MAX, RETRIES_MAX, SPEC_PARALLEL_MAX, SPEC_STEPS_MAX
from buoy.core.log.questions import Json, check_question
from buoy.core.spec.command import command_problems
from buoy.core.spec.condition import parse_when
from buoy.core.spec.fields import Fields
from buoy.core.spec.model import (
    DIRECTORY,
    Ask,
    Combine,
    Module,
    Parameter,
    Place,
    Recovery,
    Resources,
    Spec,
    Step,
    question_of,
)
from buoy.core.spec.problems import Problems, shown
from buoy.core.spec.values import memory_bytes, parameter

_SPEC_KEYS = (
    "name", "steps", "recovery", "queue", "max_parallel", "parameters", "combine", "result",
)  # fmt: skip
_WORK_KEYS = ("call", "run", "ask")
_ACTION_KEYS = ("id", *_WORK_KEYS, "with", "retries", "backoff", "timeout")
_STEP_KEYS = (
    *_ACTION_KEYS, "needs", "modules", "when", "inputs", "outputs", "resources", "supports_termination",
)  # fmt: skip
_ASK_KEYS = ("title", "kind", "options", "schema", "detail")
_RESOURCE_KEYS = ("cpus", "memory", "gpus", "nodes", "time")
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_CALL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_]\w*\Z")
_ID_EXPECTED = "expected letters, digits, '_' and '-', beginning with a letter"


def _unnamed(place: Place) -> str:
    """Stands for an id that is missing or wrong and already reported."""
    return f"unnamed-{'-'.join(str(each) for each in place if isinstance(each, int))}"


def is_id(text: str) -> bool:
    """Whether a text can be the id of a step or module: part of leaf ids, file names and references."""
    return len(text) <= NAME_CHARS_MAX and _ID.match(text) is not None


def read_spec(data: object, problems: Problems) -> Spec | None:
    """The spec, as far as it can be read; whether it is sound, `problems` says."""
    reader = _Reader(problems)
    if not isinstance(data, dict):
        problems.add((), f"expected a map with name and steps, found {shown(data)}")
        return None
    spec = reader.spec(data)
    for place, text in command_problems(spec):
        problems.add(place, text)
    return spec


class _Reader(Fields):
    """Reads one spec."""

    def spec(self, data: dict[str, Any]) -> Spec:
        self._keys(data, _SPEC_KEYS, ())
        return Spec(
            name=self._name(data.get("name"), ("name",)),
            steps=self._steps(data.get("steps")),
            recovery=cast(Recovery, self._one_of(data, "recovery", ("resume", "restart", "fail", "hold"))),
            queue=self._name(data.get("queue", "default"), ("queue",)),
            max_parallel=self._count(data, "max_parallel", (), None, 1, SPEC_PARALLEL_MAX),
            parameters=self._parameters(data.get("parameters")),
            combine=cast(Combine, self._one_of(data, "combine", ("product", "zip"))),
            result=self._value(data.get("result"), ("result",)),
        )

    def _steps(self, data: object) -> tuple[Step, ...]:
        if not isinstance(data, list) or not data:
            self._add(("steps",), f"expected a list of at least one step, found {shown(data)}")
            return ()
        if len(data) > SPEC_STEPS_MAX:
            self._add(("steps",), f"{len(data):,} steps are too many, the limit is {SPEC_STEPS_MAX:,}")
            return ()
        return tuple(self._step(each, ("steps", number)) for number, each in enumerate(data))

    def _step(self, data: object, place: Place) -> Step:
        if not isinstance(data, dict):
            self._add(place, f"expected a map with id and one of call, run, ask, modules; found {shown(data)}")
            return Step(id=_unnamed(place))
        self._keys(data, _STEP_KEYS, place)
        modules = self._modules(data["modules"], (*place, "modules")) if "modules" in data else ()
        if "modules" in data:
            for key in (*_WORK_KEYS, "with"):
                if key in data:
                    self._add((*place, key), f"a step with modules has no {key!r} of its own; give it to a module")
            data = {key: value for key, value in data.items() if key not in (*_WORK_KEYS, "with")}
        return Step(
            **self._action(data, place, has_modules=bool(modules) or "modules" in data),
            modules=modules,
            needs=self._texts(data, "needs", place) if "needs" in data else None,
            when=self._when(data, place),
            inputs=self._paths(data, "inputs", place),
            outputs=self._paths(data, "outputs", place),
            resources=self._resources(data["resources"], (*place, "resources")) if "resources" in data else None,
            supports_termination=self._flag(data, "supports_termination", place),
        )

    def _modules(self, data: object, place: Place) -> tuple[Module, ...]:
        if not isinstance(data, list) or not data:
            self._add(place, f"expected a list of at least one module, found {shown(data)}")
            return ()
        found: dict[str, Module] = {}
        for number, each in enumerate(data):
            here = (*place, number)
            if not isinstance(each, dict):
                self._add(here, f"expected a map with id and one of call, run, ask; found {shown(each)}")
                continue
            self._keys(each, _ACTION_KEYS, here)
            module = Module(**self._action(each, here))
            if module.id in found:
                self._add((*here, "id"), f"module {module.id!r} is there twice in this step")
            elif module.id and not is_id(module.id):
                self._add((*here, "id"), f"module id {module.id!r} is not allowed: {_ID_EXPECTED}")
            found[module.id] = module
        return tuple(found.values())

    def _action(self, data: dict[str, Any], place: Place, *, has_modules: bool = False) -> dict[str, Any]:
        """What steps and modules have in common."""
        work = [key for key in _WORK_KEYS if key in data]
        if len(work) != 1 and not has_modules:
            found = "none of them" if not work else " and ".join(work)
            self._add(place, f"expected exactly one of call, run, ask{'' if place[-2] == 'modules' else ', modules'}; "
                             f"found {found}")  # fmt: skip
        return {
            "id": self._text(data, "id", place) or _unnamed(place),
            "call": self._call(data, place),
            "run": self._text(data, "run", place) if "run" in data else None,
            "ask": self._ask(data["ask"], (*place, "ask")) if "ask" in data else None,
            "given": self._given(data, place),
            "retries": self._count(data, "retries", place, 0, 0, RETRIES_MAX),
            "backoff_s": self._duration(data, "backoff", place, 1.0),
            "timeout_s": self._duration(data, "timeout", place, None),
        }

    def _given(self, data: dict[str, Any], place: Place) -> dict[str, Json]:
        given = data.get("with", {})
        here = (*place, "with")
        if not isinstance(given, dict):
            self._add(here, f"expected a map of inputs by name, found {shown(given)}")
            return {}
        if given and "ask" in data:
            self._add(here, "a question takes no inputs; write references into its title or detail")
        for name in given:
            if not _VARIABLE.match(str(name)):
                self._add((*here, name), f"{name!r} is no name for an input: letters, digits and '_'")
        return cast(dict[str, Json], {str(name): self._value(each, (*here, name)) for name, each in given.items()})

    def _value(self, value: Any, place: Place) -> Json:
        """Any JSON; every text in it is a template."""
        if isinstance(value, str):
            return self._template(value, place) or ""
        if isinstance(value, list):
            return [self._value(each, (*place, number)) for number, each in enumerate(value)]
        if isinstance(value, dict):
            return {str(key): self._value(each, (*place, key)) for key, each in value.items()}
        return cast(Json, value)

    def _call(self, data: dict[str, Any], place: Place) -> str | None:
        if "call" not in data:
            return None
        text = self._text(data, "call", place)
        if text is not None and not _CALL.match(text):
            self._add((*place, "call"), f"expected 'package.module:function', found {shown(text)}")
            return None
        return text

    def _ask(self, data: object, place: Place) -> Ask | None:
        if isinstance(data, str):
            data = {"title": data}
        if not isinstance(data, dict):
            self._add(place, f"expected a map with a title, found {shown(data)}")
            return None
        self._keys(data, _ASK_KEYS, place)
        options = self._texts(data, "options", place)
        schema = data.get("schema")
        if schema is not None and not isinstance(schema, dict):
            self._add((*place, "schema"), f"expected a JSON Schema, found {shown(schema)}")
            schema = None
        guess = "form" if schema is not None else "choose" if options else "text"
        kinds = (guess, "confirm", "choose", "choose_many", "text", "form")
        made = Ask(
            title=self._text(data, "title", place) or "?",
            kind=cast(Any, self._one_of(data, "kind", kinds, place)),
            options=options,
            schema=schema,
            detail=self._text(data, "detail", place) if "detail" in data else None,
        )
        self._attempt(lambda: check_question(question_of(made, made.title, made.options, made.detail)), place)
        return made

    def _when(self, data: dict[str, Any], place: Place) -> str | None:
        if "when" not in data:
            return None
        here, value = (*place, "when"), data["when"]
        if isinstance(value, bool):
            return "true" if value else "false"
        text = self._text(data, "when", place, template=False)
        if text is None or self._attempt(lambda: parse_when(text), here) is None:
            return None
        return text

    def _parameters(self, data: object) -> tuple[Parameter, ...]:
        if data is None:
            return ()
        if not isinstance(data, dict):
            self._add(("parameters",), f"expected a map of parameters by name, found {shown(data)}")
            return ()
        found = []
        for name, value in data.items():
            place = ("parameters", name)
            if not isinstance(name, str) or not _VARIABLE.match(name):
                self._add(place, f"{name!r} is no name for a parameter: letters, digits and '_'")
                continue
            made = self._attempt(lambda name=name, value=value: parameter(name, value), place)  # type: ignore[misc]
            # A parameter that is wrong is still there: those who use it are not wrong too.
            made = made or Parameter(name, ("0",), plain=True)
            if name == DIRECTORY and not made.plain:
                self._add(place, "expected one folder")
            else:
                found.append(made)
        return tuple(found)

    def _resources(self, data: object, place: Place) -> Resources | None:
        if not isinstance(data, dict):
            self._add(place, f"expected a map with {', '.join(_RESOURCE_KEYS)}; found {shown(data)}")
            return None
        self._keys(data, _RESOURCE_KEYS, place)
        memory = None
        if "memory" in data:
            memory = self._attempt(lambda: memory_bytes(data["memory"]), (*place, "memory"))
        return Resources(
            cpus=self._count(data, "cpus", place, 1, 1, 100_000) or 1,
            memory_bytes=memory,
            gpus=self._count(data, "gpus", place, 0, 0, 10_000) or 0,
            nodes=self._count(data, "nodes", place, 1, 1, 100_000) or 1,
            time_s=self._duration(data, "time", place, None),
        )
