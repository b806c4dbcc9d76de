"""Limits of a server: bodies, headers, requests per caller, open streams. Each has an error of its own.

Invariants: a caller that is over its rate is refused before its body is read. A bucket of an idle caller is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from buoy.ports.host import Clock

# Callers that are remembered; the one that asked longest ago is forgotten first, and begins with a full bucket.
_CALLERS_MAX = 10_000


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one server takes. `rate`: requests per second of one caller, of remote runners too; None: any number."""

    rate: float | None = None
    burst: int = 100
    streams: int = 10_000
    streams_per_caller: int = 10_000
    header_bytes: int = 32 * 1024


class RateLimit:
    """A bucket of tokens for each caller."""

    def __init__(self, limits: ServerLimits, clock: Clock) -> None:
        self._rate = limits.rate
        self._burst = float(limits.burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        """0: the request may pass. Else so long until the next one may."""
        if self._rate is None:
            return 0.0
        now = self._clock.monotonic()
        left, at = self._buckets.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        passes = left >= 1.0
        self._buckets[caller] = (left - 1.0 if passes else left, now)
        while len(self._buckets) > _CALLERS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if passes else (1.0 - left) / self._rate
