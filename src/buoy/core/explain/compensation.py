"""What stands: completed steps that could be undone and were not, and what a policy makes of them, in words.

Invariant: only a compensation that the log names is spoken of. A run that its policy ends, or begins anew, undoes
nothing: that must be known before and after, since somebody else may have to.
"""

from __future__ import annotations

from collections.abc import Sequence

from buoy.core.explain import phrases
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.lineage import visible


def standing(log: Sequence[e.Event]) -> dict[LeafId, str]:
    """The completed steps of the current branch that nobody has begun to undo, each with its compensation's name."""
    can: dict[LeafId, str] = {}
    done: dict[LeafId, None] = {}
    undone: set[LeafId] = set()
    for event in visible(log):
        match event.body:
            case e.StepStarted(leaf=leaf, compensate=str(name)):
                can[leaf] = name
            case e.StepCompleted(leaf=leaf):
                done[leaf] = None
            case (
                e.CompensationStarted(leaf=leaf) | e.CompensationCompleted(leaf=leaf) | e.CompensationFailed(leaf=leaf)
            ):
                undone.add(leaf)
            case _:
                continue
    return {leaf: can[leaf] for leaf in done if leaf in can and leaf not in undone}


def names(found: dict[LeafId, str]) -> str:
    """`book#1 (by cancel_booking), pay#1 (by refund)`"""
    return phrases.listed([f"{leaf} (by {name})" for leaf, name in found.items()])


def fate(action: str, log: Sequence[e.Event]) -> str | None:
    """What becomes of the steps that could be undone, if that action is taken about a run that was lost."""
    found = standing(log)
    if not found:
        return None
    match action:
        case "fail":
            return f"Nothing is undone then: what completed and could be undone stands: {names(found)}."
        case "restart":
            return (
                "Nothing is undone before: what completed is executed a second time, under the same idempotency key: "
                f"{names(found)} could be undone."
            )
        case "compensate":
            return f"Undone first, the last one first: {names(found)}."
        case _:
            return None
