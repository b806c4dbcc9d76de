"""Fleet in objects: what one listing of `living/` shows about all runners at once.

Invariants: a runner's record is read when its runner is first met, and when the listing shows another version of it. A
glance reads it only when that version has stood for longer than a heartbeat takes. A record that is older than the
version in the listing is marked (`beaten`): its runner has written since, so it was alive. Times are intervals of this
process's own monotonic clock. The listing shows the poke too, so a look at the fleet is also a look for work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass

import msgspec

from buoy.core.ids import RunnerId
from buoy.core.limits import BEAT_S
from buoy.ports.host import Clock
from buoy.ports.records import RunnerRecord
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.runners import keys as runner_keys

# A runner whose version stands for longer than a beat and some slack has missed a beat: then its record is read.
QUIET_AFTER_S = 1.5 * BEAT_S


@dataclass(slots=True)
class _Seen:
    """What the listings showed of one runner."""

    etag: str
    since: float
    # The version that the listing showed when the record was read; the record is that one or a newer one.
    read_etag: str | None = None
    record: RunnerRecord | None = None
    # Whether the last listing showed another version than the one before.
    moved: bool = False


class ListedRunners:
    """The runners in `living/`. `read` gives a record, and whether its changes show in the listing."""

    def __init__(
        self, bucket: Bucket, clock: Clock, read: Callable[[RunnerId], Awaitable[tuple[RunnerRecord | None, bool]]]
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._read = read
        self._seen: dict[RunnerId, _Seen] = {}
        # Called with the poke's version at each listing; None: nothing has poked yet.
        self.on_poke: Callable[[str | None], None] = lambda _: None

    async def look(self, *, glance: bool, among: Set[RunnerId] | None = None) -> dict[RunnerId, RunnerRecord | None]:
        """All runners in `living/`, or some of them; None for one without a record.

        Without `glance` every record is the newest.
        """
        listed = dict(await self._bucket.list_etags(layout.LIVING))
        self.on_poke(listed.pop(layout.POKE, None))
        now = self._clock.monotonic()
        named = {runner: etag for key, etag in listed.items() if (runner := runner_keys.runner_of(key)) is not None}
        self._seen = {runner: seen for runner, seen in self._seen.items() if runner in named}
        unread = [runner for runner, etag in named.items() if self._note(runner, etag, now, glance=glance)]
        await each([runner for runner in unread if among is None or runner in among], self._refresh)
        wanted = [runner for runner in named if among is None or runner in among]
        return {runner: self._shown(runner, now, glance=glance) for runner in wanted}

    def _note(self, runner: RunnerId, etag: str, now: float, *, glance: bool) -> bool:
        """Keeps what the listing showed. Whether the record must be read."""
        seen = self._seen.get(runner)
        if seen is None:
            self._seen[runner] = _Seen(etag, now)
            return True
        quiet = now - seen.since >= QUIET_AFTER_S
        seen.moved, seen.etag = seen.etag != etag, etag
        if seen.moved and not quiet:
            seen.since = now
        return seen.read_etag != etag and (quiet or not glance or seen.read_etag is None)

    async def _refresh(self, runner: RunnerId) -> None:
        seen = self._seen[runner]
        etag, before = seen.etag, seen.record
        record, shows = await self._read(runner)
        seen.record, seen.read_etag = record, etag if shows else None
        # After a long silence a change may be a note of another observer: only another beat ends the silence.
        if (seen.moved or not shows) and not _same_beat(before, record):
            seen.since = self._clock.monotonic()

    def _shown(self, runner: RunnerId, now: float, *, glance: bool) -> RunnerRecord | None:
        seen = self._seen.get(runner)
        if seen is None or seen.record is None or not glance:
            return None if seen is None else seen.record
        beaten = seen.read_etag is not None and seen.read_etag != seen.etag
        return msgspec.structs.replace(seen.record, beaten=beaten, quiet_s=max(now - seen.since, 0.0))


def _same_beat(one: RunnerRecord | None, other: RunnerRecord | None) -> bool:
    return one is not None and other is not None and one.beat.number == other.beat.number
