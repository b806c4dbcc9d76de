"""Leaf views: what a run called and waited for on its current branch: arguments, outcomes and times, out of its log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.batch.lots import is_lot
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import fold

_WAITING = ("ask", "signal", "timer", "child")


class LeafView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step, question, signal, timer or child run, as `--json` gives it. `input` and `result` are JSON."""

    leaf: str
    kind: str
    name: str
    status: str
    attempt: int
    started_at: float
    ended_at: float | None = None
    due_at: float | None = None
    input: msgspec.Raw | None = None
    result: msgspec.Raw | None = None
    error: e.ErrorInfo | None = None


def leaf_views(run_id: RunId, log: Sequence[e.Event]) -> list[LeafView]:
    """In the order in which they began. A lot stands for its jobs, which are there by themselves."""
    events = {event.seq: event for event in log}
    return [_view(leaf, events) for leaf in fold(run_id, log).leaves.values() if not is_lot(leaf.id)]


def _view(leaf: Leaf, events: dict[int, e.Event]) -> LeafView:
    began, ended = events.get(leaf.started_seq), events.get(leaf.ended_seq)
    waits = leaf.phase == "open" and (leaf.kind in _WAITING or leaf.kind == "job")
    outcome = None if ended is None else ended.body
    return LeafView(
        leaf=leaf.id,
        kind=leaf.kind,
        name=leaf.name,
        status="waiting"
        if waits
        else {"open": "running", "held": "failed", "reset": "waiting"}.get(leaf.phase, leaf.phase),
        attempt=leaf.attempt,
        started_at=leaf.since if began is None else began.at,
        ended_at=None if ended is None else ended.at,
        due_at=leaf.due_at,
        input=None if began is None else _input(began.body),
        result=_result(outcome),
        error=leaf.error,
    )


def _input(body: e.Body) -> msgspec.Raw | None:
    match body:
        case e.StepStarted() | e.ModuleStarted():
            return body.args
        case e.ChildStarted():
            return body.input
        case _:
            return None


def _result(body: e.Body | None) -> msgspec.Raw | None:
    match body:
        case e.StepCompleted() | e.ModuleCompleted() | e.ChildFinished():
            return body.result
        case e.InteractionResponse():
            return body.answer
        case e.SignalReceived() if body.message is not None:
            return body.payload
        case _:
            return None
