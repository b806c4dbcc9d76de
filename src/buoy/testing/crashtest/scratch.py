"""Scratch: the folder of a scenario. It is removed when nothing writes to it any more.

How that is known: the guard of a command holds the lock of the command's leaf until nothing of the command is left. A
guard that has no lock yet, because its process was killed just before, shows by the file that it makes: then the folder
is not empty when it is removed, and the guard is waited for, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What a scenario keeps in its folder.
DATA, LOGS = "data", "logs"
_TRIES_MAX = 20
# A file came, or left, while the folder was removed.
_MOVED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder."""
    folder = Path(tempfile.mkdtemp(prefix="buoy-crashtest-"))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Waits for the commands of processes that have ended, then removes the folder."""
    for left in reversed(range(_TRIES_MAX)):
        _wait_for_guards(folder)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if not folder.exists():
                return
            if error.errno not in _MOVED or not left:
                raise
        else:
            return


def _wait_for_guards(folder: Path) -> None:
    for path in folder.glob(f"{LOGS}/*/*.lock"):
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        finally:
            os.close(handle)
