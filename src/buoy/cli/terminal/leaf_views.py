"""Leaf views: what a run called and waited for on its current branch: arguments, outcomes and times, out of its log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from buoy.cli.terminal.event_lines import given_text, short_json
from buoy.core.durations import in_words
from buoy.core.explain.phrases import shortened
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.state import Leaf, fold
from buoy.core.log.wording import error_text

_MARKS = {"completed": "✓", "failed": "✗", "cancelled": "-"}
_WAITING = ("ask", "signal", "timer", "child")
# A log may have hundreds of thousands of leaves; the last ones tell where the run is.
_SHOWN_MAX = 60
_NAME_CHARS_MAX = 40
_SPAN_MS_MAX = 1.0


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
    """In the order in which they began."""
    events = {event.seq: event for event in log}
    return [_view(leaf, events) for leaf in fold(run_id, log).leaves.values()]


def _view(leaf: Leaf, events: dict[int, e.Event]) -> LeafView:
    began, ended = events.get(leaf.started_seq), events.get(leaf.ended_seq)
    waits = leaf.phase == "open" and leaf.kind in _WAITING
    outcome = None if ended is None else ended.body
    return LeafView(
        leaf=leaf.id,
        kind=leaf.kind,
        name=leaf.name,
        status="waiting" if waits else {"open": "running"}.get(leaf.phase, leaf.phase),
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


def step_counts(views: Iterable[LeafView]) -> str:
    """Steps as their author counts them: the parts of a step are none, a step of a spec that asks is one."""
    steps = [each.status for each in views if each.kind in ("step", "group")]
    under_way = len(steps) - sum(status in ("completed", "failed", "cancelled") for status in steps)
    return f"{steps.count('completed')} completed, {steps.count('failed')} failed, {under_way} open"


def leaf_lines(views: Sequence[LeafView], now: float) -> list[str]:
    """One line each: mark, identity, status, time taken, arguments and outcome. The last ones of very many."""
    shown = views[-_SHOWN_MAX:]
    width = min(max((len(each.leaf) for each in shown), default=0), _NAME_CHARS_MAX)
    hidden = len(views) - len(shown)
    return [
        *([f"({hidden:,} earlier ones are left out; --json has them)"] if hidden else []),
        *(_line(each, width, now) for each in shown),
    ]


def _line(view: LeafView, width: int, now: float) -> str:
    mark = _MARKS.get(view.status, "…")
    tries = f", attempt {view.attempt}" if view.attempt > 1 else ""
    name = shortened(view.leaf, _NAME_CHARS_MAX).ljust(width)
    head = f"{mark} {name}  {view.status}{tries}, {_span(view, now)}"
    given = "" if view.input is None else given_text(view.input)
    if view.error is not None and view.status != "completed":
        return f"{head}{given}: {error_text(view.error)}"
    asked = f"  {view.name!r}" if view.kind == "ask" else ""
    return f"{head}{asked}{given}" + ("" if view.result is None else f" = {short_json(view.result)}")


def _span(view: LeafView, now: float) -> str:
    span_s = max((now if view.ended_at is None else view.ended_at) - view.started_at, 0.0)
    return f"{span_s * 1000:.0f} ms" if span_s < _SPAN_MS_MAX else in_words(span_s)
