"""File identity: whether the files that a store has open are still those that others find under their names.

Invariants: a lost file stays lost, even if a file of that name comes back: this process wrote to a file that other
processes cannot see. A check costs one `stat` for each name. Every caller that acknowledges a write checks after it.
"""

from __future__ import annotations

import os
from pathlib import Path

from buoy.errors import StoreLost


class FileIdentity:
    """The files of one store as they were when it was opened."""

    def __init__(self, store: Path, names: tuple[Path, ...]) -> None:
        self._store = store
        self._files = [(str(name), _identity(str(name))) for name in names]
        self._lost: str | None = None

    def check(self, first: int | None = None) -> None:
        """Raises `StoreLost` if one of the files was removed or replaced since. `first`: looks at so many only."""
        if self._lost is None:
            for name, (device, inode) in self._files[:first]:
                try:
                    found = os.stat(name)  # noqa: PTH116 - a hundred thousand times a minute: no object for the path
                    if found.st_ino == inode and found.st_dev == device:
                        continue
                    self._lost = f"{name} was replaced"
                except FileNotFoundError:
                    self._lost = f"{name} was removed"
                break
        self.known()

    def known(self) -> None:
        """The same without a look, for what follows a check that failed."""
        if self._lost is not None:
            raise StoreLost(
                f"the store {self._store} is lost: {self._lost} while this process used it; what was written since is "
                "not recorded; stop all processes of this store, and restore it from a backup or begin a new one"
            )


def _identity(name: str) -> tuple[int, int]:
    found = os.stat(name)  # noqa: PTH116 - as above
    return found.st_dev, found.st_ino
