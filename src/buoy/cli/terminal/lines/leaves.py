"""Leaf lines: the steps and waits of a run, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buoy.cli.terminal.lines.events import given_text, short_json
from buoy.core.durations import in_words
from buoy.core.explain.phrases import shortened
from buoy.core.log.wording import error_text
from buoy.operations.inspect.leaf_views import LeafView

_MARKS = {"completed": "✓", "failed": "✗", "cancelled": "-"}
# A log may have hundreds of thousands of leaves; the last ones tell where the run is.
_SHOWN_MAX = 60
_NAME_CHARS_MAX = 40
_SPAN_MS_MAX = 1.0


def step_counts(views: Iterable[LeafView]) -> str:
    """Counts steps as their author does: a step of a spec is one, with all its modules and questions."""
    steps = [each.status for each in views if each.kind in ("step", "group", "job")]
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
