"""Attempts of steps as spans of OpenTelemetry: one for each attempt, linked, never one for a whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import buoy
from buoy.core.ids import LeafId, RunId
from buoy.host import otel

from .harness import opened, result_of

TRIES: list[int] = []


@buoy.step(retries=1, backoff="0s")
async def shaky() -> int:
    TRIES.append(1)
    with trace.get_tracer("user").start_as_current_span("inside"):
        if len(TRIES) == 1:
            raise ValueError("not yet")
    return 1


@buoy.step
def plain() -> int:
    with trace.get_tracer("user").start_as_current_span("in a thread"):
        return 2


@buoy.workflow
async def flow() -> int:
    return await shaky()


@buoy.workflow
def sync_flow() -> int:
    return plain()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    TRIES.clear()
    yield exporter
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [each for each in exporter.get_finished_spans() if each.name == name]


async def test_each_attempt_is_a_span_that_links_to_its_step_and_to_the_attempt_before(
    url: str, spans: InMemorySpanExporter
) -> None:
    async with opened(url, flow, sync_flow) as app:
        await result_of(app, await app.start_as("r1", flow))
        await result_of(app, await app.start_as("r2", sync_flow))
    first, second = named(spans, "step shaky")
    assert [each.attributes["buoy.attempt"] for each in (first, second) if each.attributes] == [1, 2]
    assert (first.status.is_ok, first.status.description) == (False, "ValueError")
    assert second.status.is_ok
    place = otel.step_place(RunId("r1"), LeafId("shaky#1"))
    assert [each.context for each in first.links] == [place]
    assert [each.context for each in second.links] == [place, first.get_span_context()]
    # What a body traces is inside of its attempt, in a thread too; an attempt is a trace of its own.
    inside = named(spans, "inside")
    assert [each.parent and each.parent.span_id for each in inside] == [
        each.get_span_context().span_id for each in (first, second)
    ]
    (thread,), (step,) = named(spans, "in a thread"), named(spans, "step plain")
    assert thread.parent is not None and thread.parent.span_id == step.get_span_context().span_id
    assert first.parent is None and first.get_span_context().trace_id != second.get_span_context().trace_id
