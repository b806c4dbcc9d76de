"""Spec reading: plain data (from YAML or JSON) to a `Spec`, or every reason why not; and its JSON Schema for editors.

Invariants: the reader looks at everything, so that a person sees all problems at once. An unknown key is a problem,
since a setting that is silently ignored is worse than none. The tables of keys make both the reader and the schema.
What needs parameters or other steps is checked by `core.spec.plan`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from buoy.core.limits import NAME_CHARS_MAX, RETRIES_MAX, SPEC_PARALLEL_MAX, SPEC_STEPS_MAX
from buoy.core.log.questions import check_question
from buoy.core.spec.action_fields import ACTIONS_SCHEMA, read_actions
from buoy.core.spec.command import command_problems
from buoy.core.spec.condition import parse_when
from buoy.core.spec.fields import (
    ANY,
    CALL,
    DURATIONS,
    FLAG,
    ID,
    INPUTS,
    LOG_SIZE,
    PATHS,
    SIZE,
    TEXT,
    TEXTS,
    VARIABLE,
    FieldKind,
    Key,
    Keys,
    Schema,
    attempt,
    count,
    name,
    one_of,
    plain_text,
)
from buoy.core.spec.model import DIRECTORY, Ask, Module, Parameter, Place, Resources, Spec, SpecStep, question_of
from buoy.core.spec.problems import Problems, shown
from buoy.core.spec.values import parameter

_WORK_KEYS = ("call", "run", "ask")


def is_id(text: str) -> bool:
    """Whether a text can be the id of a step or module: part of leaf ids, file names and references."""
    return len(text) <= NAME_CHARS_MAX and re.fullmatch(ID, text) is not None


def read_spec(data: object, problems: Problems) -> Spec | None:
    """The spec, as far as it can be read; whether it is sound, `problems` says."""
    if not isinstance(data, dict):
        problems.add((), f"expected a map with name and steps, found {shown(data)}")
        return None
    spec = Spec(**_SPEC.read(data, (), problems))
    for place, text in command_problems(spec):
        problems.add(place, text)
    return spec


def spec_schema() -> Schema:
    """The JSON Schema of spec files. Draft 7, which editors know best."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Buoy spec",
        "description": "A workflow as data.",
        **_SPEC.schema(),
    }


def _steps(data: object, place: Place, problems: Problems) -> tuple[SpecStep, ...]:
    if not isinstance(data, list) or not data:
        problems.add(place, f"expected a list of at least one step, found {shown(data)}")
        return ()
    if len(data) > SPEC_STEPS_MAX:
        problems.add(place, f"{len(data):,} steps are too many, the limit is {SPEC_STEPS_MAX:,}")
        return ()
    return tuple(_step(each, (*place, number), problems) for number, each in enumerate(data))


def _step(data: object, place: Place, problems: Problems) -> SpecStep:
    if not isinstance(data, dict):
        problems.add(place, f"expected a map with id and one of call, run, ask, modules; found {shown(data)}")
        return SpecStep(id=_unnamed(place))
    if "modules" not in data:
        return SpecStep(**_action(data, _STEP, place, problems, "call, run, ask, modules"))
    for key in (*_WORK_KEYS, "with"):
        if key in data:
            problems.add((*place, key), f"a step with modules has no {key!r} of its own; give it to a module")
    data = {key: value for key, value in data.items() if key not in (*_WORK_KEYS, "with")}
    return SpecStep(**{"id": _unnamed(place), **_STEP.read(data, place, problems)})


def _action(data: dict[str, Any], keys: Keys, place: Place, problems: Problems, choice: str) -> dict[str, Any]:
    """What steps and modules have in common: an id, and exactly one thing to do."""
    work = [key for key in _WORK_KEYS if key in data]
    if len(work) != 1:
        found = "none of them" if not work else " and ".join(work)
        problems.add(place, f"expected exactly one of {choice}; found {found}")
    made = {"id": _unnamed(place), **keys.read(data, place, problems)}
    if made.get("given") and "ask" in data:
        problems.add((*place, "with"), "a question takes no inputs; write references into its title or detail")
    return made


def _unnamed(place: Place) -> str:
    """Stands for an id that is missing or wrong and already reported."""
    return f"unnamed-{'-'.join(str(each) for each in place if isinstance(each, int))}"


def _modules(data: object, place: Place, problems: Problems) -> tuple[Module, ...]:
    if not isinstance(data, list) or not data:
        problems.add(place, f"expected a list of at least one module, found {shown(data)}")
        return ()
    found: dict[str, Module] = {}
    for number, each in enumerate(data):
        here = (*place, number)
        if not isinstance(each, dict):
            problems.add(here, f"expected a map with id and one of call, run, ask; found {shown(each)}")
            continue
        module = Module(**_action(each, _MODULE, here, problems, "call, run, ask"))
        if module.id in found:
            problems.add((*here, "id"), f"module {module.id!r} is there twice in this step")
        elif not is_id(module.id):
            expected = "expected letters, digits, '_' and '-', beginning with a letter"
            problems.add((*here, "id"), f"module id {module.id!r} is not allowed: {expected}")
        found[module.id] = module
    return tuple(found.values())


def _ask(data: object, place: Place, problems: Problems) -> Ask | None:
    if isinstance(data, str):
        data = {"title": data}
    if not isinstance(data, dict):
        problems.add(place, f"expected a map with a title, found {shown(data)}")
        return None
    found = _ASK.read(data, place, problems)
    guess = "form" if "schema" in found else "choose" if found.get("options") else "text"
    made = Ask(**{"title": "?", "kind": guess, **found})
    attempt(lambda: check_question(question_of(made, made.title, made.options, made.detail)), place, problems)
    return made


def _form(data: object, place: Place, problems: Problems) -> dict[str, object] | None:
    if isinstance(data, dict):
        return data
    problems.add(place, f"expected a JSON Schema, found {shown(data)}")
    return None


def _when(value: object, place: Place, problems: Problems) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = plain_text(value, place, problems)
    if text is None or attempt(lambda: parse_when(text), place, problems) is None:
        return None
    return text


def _parameters(data: object, place: Place, problems: Problems) -> tuple[Parameter, ...]:
    if not isinstance(data, dict):
        problems.add(place, f"expected a map of parameters by name, found {shown(data)}")
        return ()
    found = []
    for key, value in data.items():
        here = (*place, key)
        if not isinstance(key, str) or not re.fullmatch(VARIABLE, key):
            problems.add(here, f"{key!r} is no name for a parameter: letters, digits and '_'")
            continue
        made = attempt(lambda key=key, value=value: parameter(key, value), here, problems)  # type: ignore[misc]
        # Keep a wrong parameter, so that the steps that use it are not reported as wrong too.
        made = made or Parameter(key, ("0",), plain=True)
        if key == DIRECTORY and not made.plain:
            problems.add(here, "expected one folder")
        else:
            found.append(made)
    return tuple(found)


def _resources(data: object, place: Place, problems: Problems) -> Resources | None:
    if isinstance(data, dict):
        return Resources(**_RESOURCES.read(data, place, problems))
    problems.add(place, f"expected a map with cpus, memory, gpus, nodes, time; found {shown(data)}")
    return None


def _exit_codes(value: object, place: Place, problems: Problems) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        problems.add(place, f"expected a list of exit codes, found {shown(value)}")
        return ()
    found = (_EXIT_CODE.read(each, (*place, number), problems) for number, each in enumerate(value))
    return tuple(each for each in found if each is not None)


_EXIT_CODE = count(1, 255)


_RESOURCES = Keys(
    Resources,
    {
        "cpus": Key(count(1, 100_000), "Processors."),
        "memory": Key(SIZE, "Memory: bytes, or a size such as 512MiB or 16GiB.", "memory_bytes"),
        "gpus": Key(count(0, 10_000), "Graphics processors."),
        "nodes": Key(count(1, 100_000), "Machines that one job uses."),
        "time": Key(DURATIONS, "Time limit of a batch job: seconds, or 2h.", "time_s"),
    },
)
_ASK = Keys(
    Ask,
    {
        "title": Key(TEXT, "The question. May hold references.", required=True),
        "kind": Key(
            one_of("text", "confirm", "choose", "choose_many", "form"), "What kind of answer fits.", guessed=True
        ),
        "options": Key(TEXTS, "The answers to choose from. A reference to a list stands for an option each."),
        "schema": Key(FieldKind(_form, {"type": "object"}), "The JSON Schema of a form.", nullable=True),
        "detail": Key(TEXT, "More text below the title. May hold references."),
    },
)
_ACTION = {
    "id": Key(TEXT, "Letters, digits, '_' and '-'. The id of a step may hold parameters.", required=True),
    "call": Key(CALL, "A Python function: package.module:function."),
    "run": Key(TEXT, "A command for /bin/sh."),
    "ask": Key(
        FieldKind(_ask, {**_ASK.schema(), "type": ["string", "object"], "pattern": r"\S"}),
        "A question to a person: its title, or a map.",
    ),
    "with": Key(INPUTS, "Inputs by name: arguments of a call, environment variables of a command.", "given"),
    "retries": Key(count(0, RETRIES_MAX), "How often it is tried again after a failure."),
    "backoff": Key(DURATIONS, "The wait before the first retry: seconds, or 10s, 5m.", "backoff_s"),
    "timeout": Key(DURATIONS, "How long one attempt may take: seconds, or 1h30m.", "timeout_s"),
}
_MODULE_ID = FieldKind(TEXT.read, {"type": "string", "pattern": f"^{ID}$", "maxLength": NAME_CHARS_MAX})
_MODULE = Keys(Module, {**_ACTION, "id": msgspec.structs.replace(_ACTION["id"], kind=_MODULE_ID)})
_MODULES: Schema = {
    "type": "array",
    "minItems": 1,
    "items": _MODULE.schema(oneOf=[{"required": [key]} for key in _WORK_KEYS]),
}
_STEP = Keys(
    SpecStep,
    {
        **_ACTION,
        "needs": Key(TEXTS, "The steps that must have completed before."),
        "modules": Key(FieldKind(_modules, _MODULES), "Parts that run one after the other."),
        "when": Key(
            FieldKind(_when, {"type": ["string", "boolean"]}), "A condition. If it is false, the step is skipped."
        ),
        "inputs": Key(PATHS, "Files that the step reads."),
        "outputs": Key(PATHS, "Files that the step makes."),
        "resources": Key(FieldKind(_resources, _RESOURCES.schema()), "What the step needs of a cluster."),
        "supports_termination": Key(FLAG, "The command stops in good order on SIGTERM."),
        "retry_on": Key(
            FieldKind(_exit_codes, {"type": "array", "minItems": 1, "items": _EXIT_CODE.schema}),
            "Batch runs: the exit codes after which the job is tried again. Without it: all.",
        ),
        "before_retry": Key(
            FieldKind(plain_text, {"type": "string", "pattern": r"\S"}),
            "Batch runs: a command that runs before each retry.",
        ),
        "cancel_with_needs": Key(FLAG, "Batch runs: cancel the job when a job that it needs fails for good."),
        "log_max": Key(LOG_SIZE, "Batch runs: how much of its output the job's log keeps. [64MiB]", "log_max_bytes"),
    },
)
_STEPS: Schema = {
    "type": "array",
    "minItems": 1,
    "maxItems": SPEC_STEPS_MAX,
    "items": _STEP.schema(
        oneOf=[*({"required": [key]} for key in _WORK_KEYS), {"required": ["modules"], "not": {"required": ["with"]}}]
    ),
}
_SCALAR = ["string", "number", "boolean"]
_VALUES: Schema = {"type": [*_SCALAR, "array"], "minItems": 1, "items": {"type": _SCALAR}}
_SPEC = Keys(
    Spec,
    {
        "name": Key(name("spec"), "The spec's name. Its runs are runs of spec:NAME.", required=True),
        "steps": Key(FieldKind(_steps, _STEPS), "The steps of the workflow.", required=True),
        "recovery": Key(one_of("resume", "restart", "fail", "hold"), "What happens to a run whose process died."),
        "queue": Key(name("queue"), "The queue that its runs go to."),
        "max_parallel": Key(
            count(1, SPEC_PARALLEL_MAX), "How many steps of one run execute at the same time.", nullable=True
        ),
        "parameters": Key(
            FieldKind(
                _parameters,
                {
                    "type": "object",
                    "propertyNames": {"pattern": f"^{VARIABLE}$"},
                    "additionalProperties": _VALUES,
                },
            ),
            "Values by name: one value, a list, or a range such as 1:5.",
            nullable=True,
        ),
        "combine": Key(one_of("product", "zip"), "How parameters of several values are combined."),
        "result": Key(ANY, "What a run gives back, with references."),
        "on_failure": Key(
            one_of("hold", "fail"), "Batch runs: a job that failed for good waits for a reset, or fails the run."
        ),
        "actions": Key(FieldKind(read_actions, ACTIONS_SCHEMA), "Batch runs: what is done once on the way."),
    },
)
