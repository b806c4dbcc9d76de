"""Stable events: after which event of a lineage a run was surely consistent, and which questions are open in it.

Invariant: both are read from the events alone, by question id and leaf, so that foreign logs are understood too.
"""

from __future__ import annotations

from collections.abc import Sequence

from buoy.core.ids import LeafId, leaf_scope
from buoy.core.log import events as e

_STABLE = (e.StepCompleted, e.ModuleCompleted, e.InteractionResponse)
_OUTCOMES = (e.StepCompleted, e.StepFailed, e.ModuleCompleted, e.ModuleFailed, e.LeafCancelled)


def last_stable(lineage: Sequence[e.Event]) -> e.Event | None:
    """The last `step_completed`, `module_completed` or `interaction_response` of the lineage."""
    return _last(lineage, _STABLE)


def last_module_completed(lineage: Sequence[e.Event]) -> e.Event | None:
    """The last completed module; in a run without modules the last completed step."""
    return _last(lineage, (e.ModuleCompleted,)) or _last(lineage, (e.StepCompleted,))


def _last(lineage: Sequence[e.Event], kinds: tuple[type[e.Payload], ...]) -> e.Event | None:
    return next((event for event in reversed(lineage) if isinstance(event.body, kinds)), None)


def pending_questions(lineage: Sequence[e.Event]) -> list[e.Event]:
    """The `interaction_requested` events that have no answer and were not given up, in order."""
    asked: dict[str, e.Event] = {}
    for event in lineage:
        match event.body:
            case e.InteractionRequested() as body:
                asked[body.question_id] = event
            case e.InteractionResponse() as body:
                asked.pop(body.question_id, None)
            case body if isinstance(body, _OUTCOMES):
                for question_id in [key for key, each in asked.items() if e.leaf_of(each.body) == e.leaf_of(body)]:
                    del asked[question_id]
            case body if isinstance(body, e.ENDINGS):
                asked.clear()
            case _:
                continue
    return list(asked.values())


def asking_module(lineage: Sequence[e.Event], question: e.Event) -> e.Event | None:
    """The `module_started` (or `step_started`) inside of which a question was asked; None if code asked it itself."""
    leaf = e.leaf_of(question.body)
    if leaf is None:
        return None
    found: e.Event | None = None
    for event in lineage:
        if event.seq >= question.seq:
            break
        body = event.body
        if isinstance(body, e.ModuleStarted | e.StepStarted) and within(leaf, body.leaf):
            found = event
    return found


def within(leaf: LeafId, around: LeafId) -> bool:
    """Whether a leaf is a part of that step or module, or is it itself."""
    place = around.rpartition("#")[0]
    return leaf == around or (bool(place) and (leaf_scope(leaf) + "/").startswith(place + "/"))
