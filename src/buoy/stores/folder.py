"""The folder store: the object store in a directory, for the processes of one machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from buoy.ports import Clock
from buoy.stores.folder_bucket import FolderBucket
from buoy.stores.layout import MARKER
from buoy.stores.objects import ObjectStore, mark


class FolderStore(ObjectStore):
    """A store in a directory. Open it with `await FolderStore.open(path, clock=clock)`."""

    def __init__(self, path: Path, bucket: FolderBucket, clock: Clock) -> None:
        super().__init__(bucket, clock, one_host=True)
        self._path = path

    @classmethod
    async def open(cls, path: Path, *, clock: Clock, durable: bool = True) -> FolderStore:
        """The store in that directory, made if it is not there. `durable` False is for tests only."""
        path = path.absolute()
        bucket = await FolderBucket.open(path, durable=durable)
        try:
            await mark(bucket)
            await asyncio.to_thread(_lock_dir(path).mkdir, mode=0o700, exist_ok=True)
            bucket.watch(MARKER)
        except BaseException:
            await bucket.close()
            raise
        return cls(path, bucket, clock)

    @property
    def lock_dir(self) -> Path:
        """Where the runners of this store keep their lock files."""
        return _lock_dir(self._path)


def _lock_dir(path: Path) -> Path:
    return path / "runners-locks"


__all__ = ["FolderStore"]
