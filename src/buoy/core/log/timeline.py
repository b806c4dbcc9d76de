"""Timeline: the time at which workflow code saw each outcome. It is the time of the outcome, unless the code could
react only later: when a runner took the run, or when the run was resumed.

A run that waited for an hour before a worker came must not find its first `sleep` over before it began.

Invariant: the times come from the log alone, and what is appended later never changes those that anything in the log
depends on: only outcomes after which the code has not asked for anything yet are moved. Each claim is judged by the
branch on which it came: what a later branch hides was still asked for then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from buoy.core.log import events as e
from buoy.core.log.lifecycle import BEGINS, ENDS
from buoy.core.log.lineage import hidden_at

# Outcomes that are delivered to the code. All other ends are internal to the engine.
DELIVERED = frozenset({*ENDS, e.CancelRequested}) - {
    e.RetryScheduled,
    e.CompensationRetryScheduled,
    e.CompensationCompleted,
    e.CompensationFailed,
}
# Events that only the code causes, at a first attempt: by then it had seen every earlier outcome.
_ASKED = frozenset({*BEGINS, *e.ENDINGS})
_SEQ = attrgetter("seq")
_GATES = frozenset({e.Claimed, e.Resumed})
# Claims by processes that only append something and release the run: no code runs.
_IN_PASSING = ("requested", "recovered")


def as_seen(
    log: Sequence[e.Event], pending: Sequence[e.Event] = (), shown: Sequence[e.Event] | None = None
) -> tuple[float, Sequence[e.Event]]:
    """When the code began, and the events that it is shown (default: all) with the times at which it saw them.

    `pending`: what will be added to the log. Events that a branch hides are no longer shown, but they still tell what
    the code had asked for before that branch: what it asked for next, and a branch keeps, rests on the times of then.
    """
    whole = [*log, *pending] if pending else log
    shown = log if shown is None else shown
    hidden = {} if len(shown) == len(log) else hidden_at(log)
    gates = [place for place, event in enumerate(whole) if type(event.body) in _GATES]
    began_at = log[0].at
    seen: dict[int, float] = {}
    walked_to = len(whole)
    for place in reversed(gates):
        gate = whole[place]
        resumed = type(gate.body) is e.Resumed
        if not resumed and (place >= walked_to or not _drives(gate)):
            continue  # a later claim came by here
        before = place - 1
        while before >= 0:
            event = whole[before]
            if _stops(event, resumed=resumed) and hidden.get(event.seq, gate.seq) >= gate.seq:
                break
            if type(event.body) in DELIVERED:
                seen.setdefault(event.seq, gate.at)
            before -= 1
        if not resumed:
            began_at = gate.at if before < 0 else began_at
            walked_to = before + 1
    return began_at, _dated(shown, seen) if seen else shown


def _dated(shown: Sequence[e.Event], seen: Mapping[int, float]) -> list[e.Event]:
    """The events with other times for a few of them, which stand near the end of most logs."""
    dated = list(shown)
    for seq, at in seen.items():
        place = bisect_left(dated, seq, key=_SEQ)
        if place < len(dated) and dated[place].seq == seq:
            dated[place] = msgspec.structs.replace(dated[place], at=at)
    return dated


def _drives(claim: e.Event) -> bool:
    """True if the code may have waited for this. A runner that creates and drives a run does so in one commit."""
    body = claim.body
    at_birth = claim.seq == 2 and claim.nonce is None
    return isinstance(body, e.Claimed) and body.cause not in _IN_PASSING and not at_birth


def _stops(event: e.Event, *, resumed: bool) -> bool:
    body = event.body
    if isinstance(body, e.StepStarted | e.ModuleStarted):
        return body.attempt == 1
    return type(body) in _ASKED or (resumed and type(body) is e.Paused)
