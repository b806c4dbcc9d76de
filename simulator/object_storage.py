"""Object storage: the object store over one bucket in memory that the simulated processes share."""

from __future__ import annotations

from bisect import bisect_left
from typing import cast

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.codec import decode_events, encode_events
from buoy.core.log.events import Event
from buoy.ports.host import Clock
from buoy.ports.records import Message
from buoy.ports.store import Store
from buoy.stores.objects import layout
from buoy.stores.objects.buckets.memory import MemoryData
from buoy.stores.objects.marker import FORMAT, Marker
from buoy.stores.objects.records import LogObject
from buoy.stores.objects.store import ObjectStore
from simulator.faults import Gate
from simulator.lying_bucket import LyingBucket
from simulator.storage import commit_at, dated_earlier

_STATE = "/state.json"
# Comes after everything that a key can hold.
_LAST = "\uffff"


class _Remembering(MemoryData):
    """Knows what documents were before."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, list[bytes]] = {}

    def put(self, key: str, data: bytes) -> str:
        if key.endswith(_STATE):
            self.before.setdefault(key, []).append(data)
        return super().put(key, data)


class ObjectStorage:
    """The object store over buckets in memory; each call to a bucket is one indivisible moment."""

    def __init__(self, single_host: bool, own_clock: Clock | None = None) -> None:
        self._own_clock = own_clock
        self._data = _Remembering()
        self._data.put(layout.MARKER, msgspec.json.encode(Marker(FORMAT)))
        self._one_host = single_host
        # By key, with the tag of the object that it was decoded from.
        self._decoded: dict[str, tuple[str, list[Event] | None]] = {}

    def open(self, gate: Gate, clock: Clock) -> Store:
        async def on_call(operation: str, key: str, phase: str) -> None:
            if phase == "before":
                await gate.before(f"{operation} {key}")
            else:
                await gate.after(f"{operation} {key}")

        bucket = LyingBucket(self._data, on_call, gate, metered=not self._one_host)
        return cast(Store, ObjectStore(bucket, clock, single_host=self._one_host, own_clock=self._own_clock))

    def log(self, run_id: RunId, after: int = 0) -> list[Event]:
        found: list[Event] = []
        # Each object begins with the number in its key: what was seen before need not be read again.
        for key in self._keys(layout.log_prefix(run_id), layout.log_key(run_id, after + 1) if after else ""):
            commit = self._commit(run_id, key)
            if commit is None:
                return []
            found += commit
        return found

    def _commit(self, run_id: RunId, key: str) -> list[Event] | None:
        """The events of one commit; None: the run is purged. Checks ask again and again, so it is decoded once."""
        data, etag = self._data.objects[key]
        known = self._decoded.get(key)
        if known is not None and known[0] == etag:
            return known[1]
        stored = msgspec.json.decode(data, type=LogObject)
        commit = None if stored.purged is not None else decode_events(stored.events, f"the log of {run_id}")
        self._decoded[key] = (etag, commit)
        return commit

    def inbox(self, run_id: RunId) -> list[Message]:
        objects = self._data.objects
        keys = self._keys(layout.inbox_prefix(run_id))
        return [msgspec.json.decode(objects[key][0], type=Message) for key in keys]

    def holds(self, run_id: RunId, first_seq: int, nonce: str | None) -> bool:
        found = self._data.objects.get(layout.log_key(run_id, first_seq))
        return found is not None and msgspec.json.decode(found[0], type=LogObject).nonce == nonce

    def damage(self, run_id: RunId, luck: float) -> str | None:
        key = layout.state_key(run_id)
        if key not in self._data.objects:
            return None
        if luck < 0.3:
            self._data.remove(key)
            return "lost"
        if luck < 0.6:
            self._data.put(key, b"\x00not a document")
            return "garbage"
        before = self._data.before[key]
        self._data.put(key, before[int(luck * 100) % len(before)])
        return "an older one"

    def erase(self, run_id: RunId, first_seq: int | None = None) -> None:
        keys = [layout.log_key(run_id, first_seq)] if first_seq is not None else self._keys(layout.run_prefix(run_id))
        for key in keys:
            self._data.remove(key)

    def falsify(self, run_id: RunId, first_seq: int) -> None:
        key = layout.log_key(run_id, first_seq)
        commit = commit_at(self.log(run_id), first_seq)
        if commit and key in self._data.objects:
            stored = msgspec.json.decode(self._data.objects[key][0], type=LogObject)
            events = msgspec.Raw(encode_events(dated_earlier(commit)))
            self._data.put(key, msgspec.json.encode(msgspec.structs.replace(stored, events=events)))

    def _keys(self, prefix: str, first: str = "") -> list[str]:
        """The keys that begin so, from `first` on."""
        keys = self._data.keys
        return keys[bisect_left(keys, max(prefix, first)) : bisect_left(keys, prefix + _LAST)]

    def close(self) -> None:
        """Nothing: it is memory."""
