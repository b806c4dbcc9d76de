"""Recent fleet: the runners of a store, read once for a look at many runs.

Invariant: what it gives is at most some seconds old. A run whose holder registered since is judged by a newer read.
"""

from __future__ import annotations

from buoy.core.limits import LOOKS_SLACK_S, RUNNERS_GONE_SHOWN
from buoy.engine.client.client import Client
from buoy.recovery.fleet import Fleet, read_fleet


class RecentFleet:
    """The living, and the newest of those that are gone if reading them costs nothing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._fleet: Fleet | None = None
        # When it was read, by our own clock.
        self._read_at = 0.0

    async def get(self) -> Fleet:
        """The runners; read again if the last read is too old."""
        now = self._client.clock.monotonic()
        if self._fleet is None or now - self._read_at > LOOKS_SLACK_S:
            store = self._client.store
            # A holder that is not among them is looked for again, among the gone too.
            gone = 0 if store.pace.billed else RUNNERS_GONE_SHOWN
            self._fleet, self._read_at = await read_fleet(store, self._client.liveness, gone=gone), now
        return self._fleet
