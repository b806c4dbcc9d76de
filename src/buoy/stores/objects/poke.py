"""Poke: one object that every process overwrites after it made work for others, and that idle processes look at.

Invariants: it is written after the truth that it is about, so a process that sees it finds that truth. It is a hint:
a process that dies before it pokes costs latency only, since every worker looks by itself once in a while.
Only buckets without a pulse need it. A look is one conditional read, each second while something happens. It stands
beside the records of the living, so each look at the fleet is a look at the poke too: a worker that has been idle for
a minute looks at its fleet every twelve seconds, and needs no other look.
"""

from __future__ import annotations

from buoy.errors import StoreUnusable, Unavailable
from buoy.ports.host import Clock
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import Index

BUSY_POLL_S = 1.0
# Later than the next look at the fleet, which shows the poke too.
IDLE_POLL_S = 13.0
QUIET_AFTER_S = 60.0


class Poke:
    """Tells other processes of work, and listens for theirs."""

    def __init__(self, bucket: Bucket, index: Index, clock: Clock) -> None:
        self._bucket = bucket
        self._index = index
        self._clock = clock
        self._etag = ""
        # As listings show it; some stores have another form of it there.
        self._listed: str | None = None
        self._pokes = 0
        self._poll_s = BUSY_POLL_S
        self._next = clock.monotonic()
        self._busy_until = clock.monotonic() + QUIET_AFTER_S

    async def tell(self, what: str) -> None:
        """There is work. The text only makes each body another one: an etag may be the body's hash."""
        self._pokes += 1
        body = f"{what} {self._clock.now():.6f} {self._pokes}"
        try:
            self._etag = await self._bucket.put(layout.POKE, body.encode())
        except (Unavailable, StoreUnusable) as error:
            self._index.note(error)
        self.stir()

    @property
    def due_in_s(self) -> float:
        """How long until the next look."""
        return self._next - self._clock.monotonic()

    async def look(self) -> bool:
        """Whether another process has poked since the last look."""
        self._put_off()
        if self._etag:
            found = await self._bucket.get_unless(layout.POKE, self._etag)
        else:
            found = await self._bucket.get(layout.POKE)
        if found is None:
            return False
        self._etag = found[1]
        self.stir()
        return True

    def listed(self, etag: str | None) -> bool:
        """The same by a listing that this process made anyway. An old listing costs one look for work too many."""
        self._put_off()
        if etag is None or etag in (self._listed, self._etag):
            return False
        self._listed = etag
        self.stir()
        return True

    def _put_off(self) -> None:
        """There is a look now: the next one comes later, and after a quiet minute later and later."""
        quiet = self._clock.monotonic() >= self._busy_until
        self._poll_s = min(2 * self._poll_s, IDLE_POLL_S) if quiet else BUSY_POLL_S
        self._next = self._clock.monotonic() + self._poll_s

    def stir(self) -> None:
        """This process has work: it looks each second for more."""
        self._busy_until = self._clock.monotonic() + QUIET_AFTER_S
        self._next = min(self._next, self._clock.monotonic() + BUSY_POLL_S)
