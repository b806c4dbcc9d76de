"""Actions of a spec: the keys of one entry of `actions`, and which of them belong together.

Invariant: whatever is wrong with an entry is reported with its place. Whether its jobs exist, the plan checks.
"""

from __future__ import annotations

from typing import Any

from buoy.core.limits import SPEC_ACTIONS_MAX
from buoy.core.spec.fields import DURATIONS, TEXTS, FieldKind, Key, Keys, Schema, count, one_of, plain_text
from buoy.core.spec.model import Place, SpecAction
from buoy.core.spec.problems import Problems, shown

_NODES_KEYS = ("allocations", "walltime", "account", "partition")
_PLAIN = FieldKind(plain_text, {"type": "string", "pattern": r"\S"})


def _commands(data: object, place: Place, problems: Problems) -> tuple[str, ...]:
    if not isinstance(data, list) or not data:
        problems.add(place, f"expected a list of at least one command, found {shown(data)}")
        return ()
    found = (plain_text(each, (*place, number), problems) for number, each in enumerate(data))
    return tuple(each for each in found if each is not None)


_ACTION = Keys(
    SpecAction,
    {
        "trigger": Key(
            one_of("on_workflow_start", "on_jobs_ready", "on_jobs_complete", "on_workflow_complete"),
            "When it is done: at the start, when any of its jobs is ready, when all are completed, after the end.",
            required=True,
        ),
        "kind": Key(one_of("schedule_nodes", "run_commands"), "Ask for allocations, or run commands.", required=True),
        "jobs": Key(TEXTS, "The jobs that it is about, by name. Without it: all."),
        "commands": Key(
            FieldKind(_commands, {"type": "array", "minItems": 1, "items": _PLAIN.schema}),
            "Commands for /bin/sh, one after the other until one fails.",
        ),
        "timeout": Key(DURATIONS, "How long all commands may take: seconds, or 30m.", "timeout_s"),
        "allocations": Key(count(1, 10_000), "How many to ask for. Without it: as many as the jobs need."),
        "walltime": Key(DURATIONS, "Time of each allocation: seconds, or 4h.", "walltime_s"),
        "account": Key(_PLAIN, "Account that Slurm charges."),
        "partition": Key(_PLAIN, "Partition of the allocations."),
    },
)
ACTIONS_SCHEMA: Schema = {"type": "array", "maxItems": SPEC_ACTIONS_MAX, "items": _ACTION.schema()}


def read_actions(data: object, place: Place, problems: Problems) -> tuple[SpecAction, ...]:
    """The actions of a spec, as far as they can be read."""
    if not isinstance(data, list):
        problems.add(place, f"expected a list of actions, found {shown(data)}")
        return ()
    if len(data) > SPEC_ACTIONS_MAX:
        problems.add(place, f"expected at most {SPEC_ACTIONS_MAX} actions, found {len(data):,}")
        return ()
    found = (_action(each, (*place, number), problems) for number, each in enumerate(data))
    return tuple(each for each in found if each is not None)


def _action(data: object, place: Place, problems: Problems) -> SpecAction | None:
    if not isinstance(data, dict):
        problems.add(place, f"expected a map with trigger and kind, found {shown(data)}")
        return None
    made = _ACTION.read(data, place, problems)
    if "trigger" not in made or "kind" not in made:
        return None
    for key, text in _misfits(data, made):
        problems.add((*place, key), text)
    return SpecAction(**made)


def _misfits(data: dict[Any, Any], made: dict[str, Any]) -> list[tuple[str, str]]:
    """Keys that do not fit the kind or the trigger of their action."""
    if made["kind"] == "schedule_nodes":
        found = [
            (key, "only an action of the kind run_commands has it") for key in ("commands", "timeout") if key in data
        ]
        if made["trigger"] == "on_workflow_complete":
            found.append(("trigger", "a run that ended needs no nodes; choose another trigger"))
        return found
    found = [(key, "only an action of the kind schedule_nodes has it") for key in _NODES_KEYS if key in data]
    if "commands" not in data:
        found.append(("kind", "run_commands needs commands"))
    if "jobs" in data and made["trigger"] in ("on_workflow_start", "on_workflow_complete"):
        found.append(("jobs", f"{made['trigger']} is about the whole run; leave the jobs out"))
    return found
