"""OpenTelemetry: attempts of steps as spans, through the API package only. The program decides what becomes of them.

Invariants: a span lives as long as one attempt in one process. All attempts of one step, in any process, link to the
same place, which is derived from the run and the leaf. An attempt in the process of the one before it also links to
that span. Without `opentelemetry` in the program nothing is imported and no span is made.
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from typing import Any

from buoy.core.ids import LeafId, RunId

# Steps whose last span is remembered, for the link of the next attempt.
_REMEMBERED_MAX = 10_000


class OtelSpan:
    """The span of one attempt."""

    def __init__(self, span: Any) -> None:
        self._span = span
        self._over = False

    def enter(self) -> None:
        from opentelemetry import context, trace

        # Not detached: the context of a body ends with the body.
        context.attach(trace.set_span_in_context(self._span))

    def end(self, error: str | None = None) -> None:
        from opentelemetry.trace import Status, StatusCode

        if not self._over:
            self._over = True
            if error is not None:
                self._span.set_status(Status(StatusCode.ERROR, error))
            self._span.end()


class OtelSpans:
    """Makes spans by the tracer that the program has set up."""

    def __init__(self) -> None:
        from opentelemetry import trace

        self._tracer = trace.get_tracer("buoy")
        self._last: OrderedDict[tuple[RunId, LeafId], Any] = OrderedDict()

    def begin(self, run_id: RunId, leaf: LeafId, name: str, attempt: int) -> OtelSpan:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link

        before = self._last.pop((run_id, leaf), None)
        links = [Link(step_place(run_id, leaf))] + ([] if before is None else [Link(before)])
        about: dict[str, str | int] = {
            "buoy.run_id": run_id,
            "buoy.leaf": leaf,
            "buoy.step": name,
            "buoy.attempt": attempt,
        }
        # An empty context: an attempt is no part of what this process does otherwise.
        span = self._tracer.start_span(f"step {name}", context=Context(), attributes=about, links=links)
        self._last[run_id, leaf] = span.get_span_context()
        if len(self._last) > _REMEMBERED_MAX:
            self._last.popitem(last=False)
        return OtelSpan(span)


def step_place(run_id: RunId, leaf: LeafId) -> Any:
    """The place that all attempts of one step link to. Its trace is the run's."""
    from opentelemetry.trace import SpanContext, TraceFlags

    trace_id = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:16], "big")
    span_id = int.from_bytes(hashlib.sha256(f"{run_id}/{leaf}".encode()).digest()[:8], "big")
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def otel_spans() -> OtelSpans | None:
    """Spans if the program uses OpenTelemetry: it has imported the API before its worker starts."""
    return OtelSpans() if "opentelemetry.trace" in sys.modules else None
