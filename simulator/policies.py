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

POLICIES: dict[str, Check] = {"policies are obeyed": policies_are_obeyed}
