"""Transitions of jobs: what the events of batch runs do to a run's state.

Invariant: as in `core.log.transitions`, nothing is read but the state and the event.
"""

from __future__ import annotations

from buoy.core.log import cluster_changes as c
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import Handler, State


def _ended(state: State, event: e.Event, body: e.JobsEnded) -> None:
    state.consume(event, body.message)


def _reset(state: State, event: e.Event, body: e.JobsReset) -> None:
    state.consume(event, body.message)
    state.limits.update(body.limits)
    for leaf in body.leaves:
        state.stopped.pop(leaf, None)
        state.let_go(leaf)
        known = state.leaves.get(leaf)
        if known is not None and known.phase == "cancelled":
            known.phase = "reset"


def _stopped(state: State, event: e.Event, body: e.JobsStopped) -> None:
    state.consume(event, body.message)
    for leaf in body.leaves:
        state.stopped[leaf] = "disabled" if body.disabled else "cancelled" if body.cause == "user" else body.cause
        state.let_go(leaf)


def _cluster_changed(state: State, event: e.Event, body: e.ClusterChanged) -> None:
    """A run's status does not depend on its allocations. Of two changes with one number only the first counts."""
    state.consume(event, body.message)
    if body.number > state.cluster_number:
        state.cluster_number = body.number
        state.allocations = c.live_after(state.allocations, body.changes)


def _offered(state: State, event: e.Event, body: e.JobOffered) -> None:
    leaf = state.open.get(body.leaf)
    if leaf is None:
        leaf = Leaf(body.leaf, "job", body.name, event.at, attempt=body.attempt, started_seq=event.seq)
        state.begin(leaf)
    elif leaf.kind != "job":
        state.odd(f"event {event.seq}: job_offered of {body.leaf}, which is an open {leaf.kind}")
        return
    state.set_phase(leaf, "open")
    leaf.attempt, leaf.since, leaf.lot, leaf.due_at = body.attempt, event.at, body.lot, None


def _held(state: State, event: e.Event, body: e.JobHeld) -> None:
    """The job is open, and nothing of it executes."""
    leaf = state.open.get(body.leaf)
    if leaf is None or leaf.kind != "job":
        state.odd(f"event {event.seq}: job_held of {body.leaf}, which is no open job")
        return
    state.set_phase(leaf, "held")
    leaf.error, leaf.attempt, leaf.ended_seq, leaf.due_at = body.error, body.attempt, event.seq, None


JOB_HANDLERS: dict[type[e.Payload], Handler] = {
    e.JobsEnded: _ended,
    e.JobsReset: _reset,
    e.JobsStopped: _stopped,
    e.ClusterChanged: _cluster_changed,
    e.JobOffered: _offered,
    e.JobHeld: _held,
}
