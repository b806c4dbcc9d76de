"""Births: a run begins as it was asked for, and only code that it is bound to moves it.

Pure, as `invariants`. What was asked for is read from the plan and from the logs of parents and predecessors, and not
by the code that creates runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.events import Parent
from simulator.evidence import Asked, Check, Evidence
from simulator.programs import root_of

# What only the code of a workflow begins. A further attempt needs no code.
_MOVES = (
    *(e.StepStarted, e.InteractionRequested, e.SignalWaited, e.TimerStarted, e.ChildStarted),
    *(e.WorkflowCompleted, e.LeafCancelled),
)


def asked_by_kin(logs: Mapping[str, Sequence[e.Event]]) -> dict[str, Asked]:
    """The runs that other runs asked for: children, and those that a run continued as."""
    found: dict[str, Asked] = {}
    for run_id, log in logs.items():
        created = log[0].body if log else None
        if not isinstance(created, e.WorkflowCreated):
            continue
        bound = created.version
        for body in (event.body for event in log):
            if isinstance(body, e.VersionBound):
                bound = body.version
            elif isinstance(body, e.ChildStarted):
                parent = None if body.detach else Parent(RunId(run_id), body.leaf)
                found[body.child] = Asked(
                    body.workflow, _value(body.input), body.policy, body.queue, created.stack, created.env, parent,
                    _also(found, body.child, body.version),
                )  # fmt: skip
            elif isinstance(body, e.WorkflowCompleted) and body.continued_as is not None:
                found[body.continued_as] = Asked(
                    created.workflow, _value(body.next_input), created.policy, created.queue, created.stack,
                    created.env, created.parent, _also(found, body.continued_as, bound),
                )  # fmt: skip
    return found


def _also(found: Mapping[str, Asked], run_id: str, version: str) -> tuple[str, ...]:
    """This version of the code, and those that asked for the same run before: which of them was heard is not known."""
    return (*(found[run_id].versions if run_id in found else ()), version)


def _value(stored: msgspec.Raw) -> Any:
    return msgspec.json.decode(stored)


def runs_begin_as_asked(found: Evidence) -> Iterator[str]:
    """Workflow, input, policy, queue, scope and parent are those that its starter, parent or predecessor gave."""
    created, asked = (found.log[0].body if found.log else None), found.asked
    if asked is None or not isinstance(created, e.WorkflowCreated):
        return
    made = Asked(
        created.workflow, _value(created.input), created.policy, created.queue, created.stack, created.env,
        created.parent, asked.versions,
    )  # fmt: skip
    # Who drives it from its first event on binds it to its own code.
    driven = len(found.log) > 1 and isinstance(found.log[1].body, e.Claimed) and found.log[1].nonce is None
    if asked.versions and not driven and created.version not in asked.versions:
        yield f"it begins with version {created.version}, and was to begin with {' or '.join(asked.versions)}"
    for name in Asked.__struct_fields__:
        if getattr(made, name) != getattr(asked, name):
            yield f"its {name} is {getattr(made, name)}, and was to be {getattr(asked, name)}"
    if root_of(found.run_id) == found.run_id and created.parent is not None:
        yield f"a person started it, and it says that {created.parent} did"


def code_is_bound_before_it_moves_a_run(found: Evidence) -> Iterator[str]:
    """What the code begins is written by a worker that has the version to which the run is bound by then."""
    created = found.log[0].body if found.log else None
    if not isinstance(created, e.WorkflowCreated) or found.program.op == "spec":
        return
    bound, writer = created.version, ""
    for place, event in enumerate(found.log):
        body = event.body
        if event.nonce is not None:
            writer = found.writers.get(event.nonce, "")
            bound = _bound_by(found.log, place) or bound
        runner = found.runners.get(writer)
        if not isinstance(body, _MOVES) or getattr(body, "attempt", 1) > 1 or runner is None:
            continue
        versions = runner.workflows.get(created.workflow, ())
        if versions and bound not in ("", *versions):
            yield f"event {event.seq} ({event.type}) is by {writer}, which has {versions}; the run is bound to {bound}"


def _bound_by(log: Sequence[e.Event], place: int) -> str | None:
    """The version to which the commit that begins there binds the run."""
    for event in islice(log, place, None):
        if event.nonce is not None and event is not log[place]:
            return None
        if isinstance(event.body, e.VersionBound):
            return event.body.version
    return None


BIRTHS: dict[str, Check] = {
    "runs begin as asked": runs_begin_as_asked,
    "code is bound before it moves a run": code_is_bound_before_it_moves_a_run,
}
