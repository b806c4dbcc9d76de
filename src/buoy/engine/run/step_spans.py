"""Step spans: a span for each attempt of a step, from the start of its body to its outcome.

Invariant: the span ends before the outcome enters the run, so that a commit that takes long is no part of it.
"""

from __future__ import annotations

from buoy.engine.authoring.context import StepContext
from buoy.engine.run.step_attempt import BodyEnd, EngineFailure, Failure, Report
from buoy.ports.host import AttemptSpans


def traced(spans: AttemptSpans, context: StepContext, report: Report) -> Report:
    """The report of an attempt that ends its span first."""
    span = context.span = spans.begin(context.run_id, context.leaf, context.name, context.attempt)

    def done(end: BodyEnd) -> None:
        match end:
            case Failure():
                span.end(end.error.type)
            case EngineFailure():
                span.end(type(end.error).__name__)
            case _:
                span.end()
        report(end)

    return done
