"""Pauses: what a run may record between its pause and the end of that pause.

Pure, as `invariants`. A step that was under way may end, and messages are read; their outcomes are kept from the code.
No time fires, and the code begins nothing: that waits until the pause is over.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.log import events as e
from simulator.evidence import Check, Evidence

_MOVES = (
    *(e.TimerFired, e.TimerStarted, e.SignalWaited, e.InteractionRequested, e.ChildStarted),
    *(e.StepStarted, e.ModuleStarted, e.CompensationStarted),
)


def nothing_moves_in_a_pause(found: Evidence) -> Iterator[str]:
    """Between `paused` and what ends the pause no time fires, and neither the code nor a retry begins anything."""
    paused: int | None = None
    for event in found.log:
        body = event.body
        if isinstance(body, e.Paused):
            paused = event.seq
        elif isinstance(body, (e.Resumed, e.BranchCreated, e.CancelRequested, *e.ENDINGS)):
            paused = None
        elif paused is not None and isinstance(body, _MOVES):
            yield f"event {event.seq} is {event.type}, and the run is paused since event {paused}"


PAUSES: dict[str, Check] = {"nothing moves in a pause": nothing_moves_in_a_pause}
