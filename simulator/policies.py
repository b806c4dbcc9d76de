"""Policies: what becomes of a run whose owner died while it executed.

Pure, as `invariants`. The policy stands in the run's first event. A worker that claims the run, or a sweep, meets the
policy in the commit of its claim.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.log import events as e
from simulator.evidence import Check, Evidence
from simulator.reading import parts_of, status_of, walked


def policies_are_obeyed(found: Evidence) -> Iterator[str]:
    """A run that was executing is begun again, failed or held if its policy says so. Else it continues."""
    created = found.log[0].body if found.log else None
    if not isinstance(created, e.WorkflowCreated) or created.policy not in _MET_BY:
        return
    for event, seen in walked(found.log):
        if not isinstance(event.body, e.Claimed) or event.body.cause != "taken_over":
            continue
        before = seen[:-1]
        if status_of(found.log[: event.seq - 1], before, parts_of(before)) != "running":
            continue
        if not any(isinstance(each.body, _MET_BY[created.policy]) for each in _with(found.log, event)):
            yield f"event {event.seq} takes the run over, and its policy is {created.policy}"


def only_the_dead_are_met(found: Evidence) -> Iterator[str]:
    """A policy is met where an owner died, or its record is damaged, while the run executed; and it is the run's own.

    A run that waits, or that its owner has given back, continues, whatever its policy is.
    """
    created = found.log[0].body if found.log else None
    for event, seen in walked(found.log):
        if not isinstance(event.body, e.Claimed) or not isinstance(created, e.WorkflowCreated):
            continue
        met = next((policy for each in _with(found.log, event) if (policy := _meets(each.body)) is not None), None)
        if met is None:
            continue
        before = seen[:-1]
        status = status_of(found.log[: event.seq - 1], before, parts_of(before))
        if met != created.policy:
            yield f"event {event.seq} claims the run to {met} it, and its policy is {created.policy}"
        elif event.body.cause not in _OF_THE_DEAD or (status != "running" and found.damaged_at is None):
            yield f"event {event.seq} ({event.body.cause}) claims the run to {met} it, and it was {status}"


def _meets(body: e.Body) -> str | None:
    """The policy that an event meets."""
    if isinstance(body, e.BranchCreated) and body.cause == "restart":
        return "restart"
    if isinstance(body, e.WorkflowFailed) and body.error.type == "RecoveryRefused":
        return "fail"
    return "hold" if isinstance(body, e.Paused) and body.reason == "hold" else None


def _with(log: list[e.Event], claim: e.Event) -> Iterator[e.Event]:
    """What was appended in one commit after a claim."""
    for event in log[claim.seq :]:
        if event.nonce is not None:
            return
        yield event


# A run that ends its processes is paused, whatever its policy is; so is one whose code does not fit.
_MET_BY: dict[str, tuple[type[e.Payload], ...]] = {
    "restart": (e.BranchCreated, e.Paused),
    "fail": (e.WorkflowFailed, e.Paused),
    "hold": (e.Paused,),
}

# The claims of who takes over from a dead owner, or mends what it left.
_OF_THE_DEAD = ("taken_over", "recovered")

POLICIES: dict[str, Check] = {
    "policies are obeyed": policies_are_obeyed,
    "policies are for runs whose owner died": only_the_dead_are_met,
}
