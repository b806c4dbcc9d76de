"""Write probe: whether a folder takes more data now, by writing a small file there and removing it again.

Invariant: nothing is left behind, and no file of a store is touched.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from buoy.ports.maintenance import Refusal, RefusalCause

# More than what a small commit adds to a write-ahead log or a bucket.
PROBE_BYTES = 64 * 1024
_CAUSES: dict[int, RefusalCause] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "quota",
    errno.EROFS: "read_only",
    errno.EACCES: "not_permitted",
    errno.EPERM: "not_permitted",
    errno.EFBIG: "file_size",
}


def write_refusal(folder: Path) -> Refusal | None:
    """Why nothing can be written into that folder now; None if it can."""
    try:
        # Without a name where the system allows it, so that a kill leaves nothing either.
        with tempfile.TemporaryFile(dir=folder, prefix=".buoy-probe-", buffering=0) as file:
            data = bytes(PROBE_BYTES)
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0, "other")
        return Refusal(cause=cause, place=str(folder), detail=error.strerror or str(error), free_bytes=_free(folder))
    return None


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
