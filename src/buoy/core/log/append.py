"""Append: turns bodies into the next events of a log, with the state and the document after them.

Invariants: the numbers follow the log without a gap; a run's time never goes back; the first event bears the nonce of
the commit. A `branch_created` and all that follows it belong to the new branch.
Absent on purpose: the live owner of a run. It adds event by event to the state that it holds (`State.append`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import Document, document
from buoy.core.log.lineage import current_branch
from buoy.core.log.state import State, fold


class Appended(msgspec.Struct, frozen=True):
    """The next events of a log, with state and document after them. `after_seq`: the last number before them."""

    run_id: RunId
    after_seq: int
    events: tuple[e.Event, ...]
    state: State
    document: Document


def append(
    run_id: RunId, log: Sequence[e.Event], bodies: Sequence[e.Body], at: float, nonce: str, folded: State | None = None
) -> Appended:
    """Adds the bodies to a whole log; an empty log is that of a new run. `at`: the writer's time.

    `folded`: the state of that log, which then moves on by the bodies. Such bodies hide and rename nothing.
    """
    after_seq, branch = 0, current_branch(log)
    if log:
        after_seq, at = log[-1].seq, max(at, log[-1].at)
    events: list[e.Event] = []
    for place, body in enumerate(bodies, 1):
        if isinstance(body, e.BranchCreated):
            branch = body.branch
        version = e.VERSIONS.get(type(body), 1)
        events.append(e.Event(after_seq + place, at, body, branch, version, nonce if place == 1 else None))
    state = fold(run_id, [*log, *events]) if folded is None else _moved_on(folded, events)
    return Appended(run_id, after_seq, tuple(events), state, document(state))


def _moved_on(state: State, events: Sequence[e.Event]) -> State:
    for event in events:
        assert not isinstance(event.body, e.BranchCreated | e.VersionBound), "they change what came before"
        state.apply(event)
    return state
