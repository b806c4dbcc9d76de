"""Claims: what a process says when it takes a run or lets it go.

Pure, as `invariants`. Crashes are counted, and policies are met, by what these events say.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.log import events as e
from simulator.evidence import Check, Evidence
from simulator.reading import parts_of, status_of, walked

# Claims of who appends something and drives nothing.
_IN_PASSING = ("requested", "recovered")
# After these the run was let go in order, or a person or a remedy has moved it.
_LETS_GO = e.Paused | e.Resumed | e.BranchCreated | e.Interrupted


def takeovers_are_called_so(found: Evidence) -> Iterator[str]:
    """Who takes a run in which a step executes has it from an owner that is gone, unless that one let it go."""
    owner: str | None = None
    excused, paused = True, False
    for event, seen in walked(found.log):
        body = event.body
        if isinstance(body, _LETS_GO):
            excused, paused = True, isinstance(body, e.Paused)
        if not isinstance(body, e.Claimed):
            continue
        if body.cause in _IN_PASSING:
            excused = True
            if body.evidence.get("finding") == "H1":
                yield f"event {event.seq}: the owner is dead, and the claim is called {body.cause}"
            continue
        executes = [part.leaf for part in parts_of(seen[:-1]).values() if part.executes]
        if executes and not excused and body.runner != owner and body.cause != "taken_over":
            yield f"event {event.seq}: {body.runner} takes the run ({body.cause}), and {owner} executes {executes}"
        # A sweep that claims a run of a dead owner leaves it to the next runner. The owner of a paused run executes
        # nothing.
        owner, excused = body.runner, paused or "finding" in body.evidence


def only_what_executes_is_interrupted(found: Evidence) -> Iterator[str]:
    """A run that waits is given back without an event."""
    for event, seen in walked(found.log):
        if isinstance(event.body, e.Interrupted):
            before = seen[:-1]
            status = status_of(found.log[: event.seq - 1], before, parts_of(before))
            if status not in ("running", "compensating"):
                yield f"event {event.seq} interrupts a run that is {status}"


CLAIMS: dict[str, Check] = {
    "takeovers are called so": takeovers_are_called_so,
    "only what executes is interrupted": only_what_executes_is_interrupted,
}
