"""Stopwatch: what every worker shares - rates, percentiles and the one JSON line that it prints.

Invariant: standard library only, because this also runs inside the DBOS environment.
"""

import json
import sys
from collections.abc import Mapping
from math import ceil
from time import perf_counter

Reading = Mapping[str, float | int | str]


class Stopwatch:
    """Counts wall-clock seconds from its making."""

    def __init__(self) -> None:
        self._began = perf_counter()

    def elapsed_s(self) -> float:
        return perf_counter() - self._began

    def rate(self, count: int) -> float:
        """How many per second, had `count` things happened since the start."""
        return count / self.elapsed_s()


def percentile(samples: list[float], share: float) -> float:
    """The nearest-rank percentile; `share` is between 0 and 1."""
    return sorted(samples)[max(0, ceil(share * len(samples)) - 1)]


def latency_reading(samples_s: list[float]) -> Reading:
    return {
        "p50_ms": percentile(samples_s, 0.50) * 1000,
        "p99_ms": percentile(samples_s, 0.99) * 1000,
        "samples": len(samples_s),
    }


def report(reading: Reading) -> None:
    """Print the reading as the last line of stdout, where `bench.py` looks for it."""
    sys.stdout.write(json.dumps(dict(reading)) + "\n")
    sys.stdout.flush()
