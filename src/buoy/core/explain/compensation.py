"""Completed steps that have a compensation and were not undone, and what a policy does with them.

Invariant: the texts name only compensations that the log names. A policy that fails or restarts a run undoes nothing.
The texts say so before and after, because a person may have to undo the effects.
"""

from __future__ import annotations

from collections.abc import Sequence

from buoy.core.explain import phrases
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.lineage import visible


def standing(log: Sequence[e.Event]) -> dict[LeafId, str]:
    """The completed steps of the current branch whose compensation has not started, with its name."""
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
    """What an action on an abandoned run means for the steps that could be undone."""
    found = standing(log)
    if not found:
        return None
    match action:
        case "fail":
            return f"Nothing is undone then. These completed steps keep their effects: {names(found)}."
        case "restart":
            return (
                "Nothing is undone first. Completed steps run a second time, with the same idempotency key: "
                f"{names(found)} could be undone."
            )
        case "compensate":
            return f"Buoy first undoes these steps, the last one first: {names(found)}."
        case _:
            return None
