"""Pauses: what a run may record between its pause and the end of that pause.

Pure, as `invariants`. A step that was under way may end, and messages are read; their outcomes are kept from the code.
No time fires, and the code begins nothing: that waits until the pause is over.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from buoy.core.log import events as e
from buoy.engine.run.mailbox import Reason
from simulator.evidence import Check, Evidence
from simulator.reading import pause_of

_BY_ITSELF = "the end of its pause"
# Times pass through sums and differences of floats.
_ROUNDING_S = 0.001

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


def pauses_end_for_a_reason(found: Evidence) -> Iterator[str]:
    """A request that takes back a pause ends that one and no other. A pause ends by itself when its time is over.

    Where a clock was set back, what is due in a minute comes in a minute all the same.
    """
    asked = {message.number: message for message in found.inbox if message.kind == "resume"}
    for event in found.log:
        body = event.body
        pause = pause_of(found.log[: event.seq - 1]) if isinstance(body, e.Resumed) else None
        if pause is None or not isinstance(body, e.Resumed) or not isinstance(pause.body, e.Paused):
            continue
        message = asked.get(body.message or 0)
        takes_back = None if message is None else msgspec.json.decode(message.body, type=Reason).takes_back
        if takes_back is not None and takes_back != pause.body.message:
            yield f"event {event.seq} takes back message {takes_back}, and ends the pause of event {pause.seq}"
        ends_at = pause.body.expires_at
        early = ends_at is not None and event.at < ends_at - _ROUNDING_S and not found.clocks_set
        if body.by == _BY_ITSELF and (ends_at is None or early):
            yield f"event {event.seq}: the pause of event {pause.seq} ends by itself before its time"


def a_cancellation_ends_a_pause(found: Evidence) -> Iterator[str]:
    """The code of a paused run sees its cancellation at once, or the request ends the run itself."""
    for event in found.log:
        after = found.log[event.seq : event.seq + 1]
        pause = pause_of(found.log[: event.seq]) if isinstance(event.body, e.CancelRequested) else None
        if pause is not None and not any(isinstance(each.body, e.ENDINGS) for each in after):
            yield f"event {event.seq} asks to cancel it, and it stays paused since event {pause.seq}"


PAUSES: dict[str, Check] = {
    "a cancellation ends a pause": a_cancellation_ends_a_pause,
    "nothing moves in a pause": nothing_moves_in_a_pause,
    "pauses end for a reason": pauses_end_for_a_reason,
}
