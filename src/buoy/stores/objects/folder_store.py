"""The folder store: the object store in a directory, for the processes of one machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from buoy.ports.host import Clock
from buoy.stores.objects.buckets.folder import FolderBucket
from buoy.stores.objects.layout import MARKER
from buoy.stores.objects.marker import mark
from buoy.stores.objects.store import ObjectStore


class FolderStore(ObjectStore):
    """A store in a directory. Open it with `await FolderStore.open(path, clock=clock)`."""

    def __init__(
        self, path: Path, bucket: FolderBucket, clock: Clock, own_clock: Clock | None = None, *, outdated: bool = False
    ) -> None:
        super().__init__(bucket, clock, single_host=True, own_clock=own_clock, outdated=outdated)
        self._path = path
        self._durable = bucket.durability() is None
        # An upgrade replaces the marker, so that it is watched from then on.
        self._upgrade.on_marked = lambda: bucket.watch(MARKER)

    @classmethod
    async def open(
        cls, path: Path, *, clock: Clock, durable: bool = True, own_clock: Clock | None = None
    ) -> FolderStore:
        """The store in that directory, made if it is not there. `durable` False is for tests only.

        `own_clock`: as in `SqliteStore.open`.
        """
        path = path.absolute()
        bucket = await FolderBucket.open(path, durable=durable)
        try:
            outdated = await mark(bucket)
            await asyncio.to_thread(_lock_dir(path).mkdir, mode=0o700, exist_ok=True)
            bucket.watch(*() if outdated else (MARKER,))
        except BaseException:
            await bucket.close()
            raise
        return cls(path, bucket, clock, own_clock, outdated=outdated)

    async def reopen(self) -> FolderStore:
        clock, own_clock = self._clock.parts
        return await FolderStore.open(self._path, clock=clock, durable=self._durable, own_clock=own_clock)

    @property
    def lock_dir(self) -> Path:
        """Where the runners of this store keep their lock files."""
        return _lock_dir(self._path)


def _lock_dir(path: Path) -> Path:
    return path / "runners-locks"


__all__ = ["FolderStore"]
