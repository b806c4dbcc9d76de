"""Metrics: figures of the server and of its store, in the text format of Prometheus.

Invariants: labels have few values: routes, not paths. Figures of the store are read at a scrape, at most every few
seconds, whatever the number of scrapers. A store that does not answer is a figure, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from buoy.core.log.lifecycle import Status
from buoy.errors import Problem
from buoy.operations.maintenance.figures import Figures, store_figures
from buoy.web.backend import OpenedServer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Scrapers that come together share one look at the store.
LOOK_EVERY_S = 5.0
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The registry of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "buoy_http_requests", "Requests by route and status.", ("method", "route", "status"), registry=self.registry
        )
        self.request_seconds = Histogram(
            "buoy_http_request_seconds", "Time to answer, without streams.", ("route",), buckets=_FAST,
            registry=self.registry,
        )  # fmt: skip
        self.commit_seconds = Histogram(
            "buoy_commit_seconds", "Time until a commit of a remote runner is durable.", buckets=_FAST,
            registry=self.registry,
        )  # fmt: skip
        self.streams = Gauge("buoy_streams_open", "Live streams that are open.", registry=self.registry)
        self.dropped = Counter("buoy_streams_dropped", "Streams that ended because a reader was too slow.",
                               registry=self.registry)  # fmt: skip
        self.store_up = Gauge("buoy_store_up", "1 while the store answers.", registry=self.registry)
        self._store = _StoreFigures()
        self.registry.register(self._store)
        self._looked_at: float | None = None
        self._lock = asyncio.Lock()

    async def text(self, opened: OpenedServer) -> bytes:
        """All figures. Those of the store are left out while it does not answer."""
        async with self._lock:
            now = opened.clock.monotonic()
            if self._looked_at is None or now - self._looked_at >= LOOK_EVERY_S:
                try:
                    self._store.figures = await store_figures(opened.served.client("metrics"))
                    self.store_up.set(1)
                except Problem:
                    self._store.figures = None
                    self.store_up.set(0)
                self._looked_at = now
        self.streams.set(opened.hub.streams)
        return generate_latest(self.registry)


class _StoreFigures:
    """The figures of the last look as metrics."""

    def __init__(self) -> None:
        self.figures: Figures | None = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        if self.figures is None:
            return
        found = self.figures
        runs = GaugeMetricFamily("buoy_runs", "Runs by status.", labels=["status"])
        for status in sorted({*Status, *found.runs}):
            runs.add_metric([str(status)], found.runs.get(status, 0))
        yield runs
        yield GaugeMetricFamily("buoy_queue_depth", "Runs that are due and that no runner holds.", found.queue.depth)
        yield GaugeMetricFamily("buoy_queue_oldest_seconds", "How long the oldest has waited.", found.queue.oldest_s)
        yield from _runners(found)
        yield from _sweeps(found)
        yield from _recovery(found)
        requests = CounterMetricFamily("buoy_store_requests", "Requests to an object store by kind.", labels=["kind"])
        for kind, number in found.requests.items():
            requests.add_metric([kind], number)
        yield requests


def _runners(found: Figures) -> Iterable[Metric]:
    yield GaugeMetricFamily("buoy_runners", "Runners that live.", len(found.runners))
    ages = GaugeMetricFamily("buoy_runner_heartbeat_age_seconds", "Age of the last heartbeat.", labels=["runner"])
    errors = GaugeMetricFamily("buoy_runner_errors", "Errors that a runner met.", labels=["runner"])
    for each in found.runners:
        if each.beat_age_s is not None:
            ages.add_metric([each.id], each.beat_age_s)
        errors.add_metric([each.id], each.errors)
    yield ages
    yield errors


def _sweeps(found: Figures) -> Iterable[Metric]:
    sweeps = CounterMetricFamily("buoy_sweeps", "Whole sweeps.", labels=["runner"])
    failed = CounterMetricFamily("buoy_sweep_errors", "Errors of sweeps.", labels=["runner"])
    ages = GaugeMetricFamily("buoy_sweep_age_seconds", "Since the last whole sweep ended.", labels=["runner"])
    for each in found.sweepers:
        sweeps.add_metric([each.runner], each.sweeps)
        failed.add_metric([each.runner], each.errors)
        if each.age_s is not None:
            ages.add_metric([each.runner], each.age_s)
    yield sweeps
    yield failed
    yield ages


def _recovery(found: Figures) -> Iterable[Metric]:
    slowest = max(found.detected_s, default=0.0)
    yield GaugeMetricFamily(
        "buoy_time_to_detect_seconds", "Of the runners that died last: heartbeat to declaration, the longest.", slowest
    )
    yield GaugeMetricFamily(
        "buoy_time_to_resume_seconds",
        "Of active runs that were taken over last in the middle of a step: from their last event to the takeover, "
        "the longest.",
        # A run that waited for an answer or a timer would have stood still anyway.
        max((each.stood_s for each in found.takeovers if each.repeated), default=0.0),
    )
    yield GaugeMetricFamily(
        "buoy_work_repeated_steps", "Steps of these runs that a takeover began again.",
        sum(each.repeated for each in found.takeovers),
    )  # fmt: skip
    yield GaugeMetricFamily(
        "buoy_work_repeated_seconds", "How long these steps had been under way, as far as the logs tell.",
        sum(each.repeated_s for each in found.takeovers),
    )  # fmt: skip
    yield GaugeMetricFamily("buoy_recoveries_active", "Recoveries of runs that have not ended.", found.recoveries)
    yield GaugeMetricFamily(
        "buoy_claims_repeated", "Claims after the first of runs that have not ended.", found.claims_again
    )
