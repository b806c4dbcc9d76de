"""Folder errors: what the operating system's errors mean for a store in a folder.

Invariant: an error that says what is wrong with the folder is `StoreUnusable` and names the way out. Any other one is
`Unavailable`: the call may have happened.
"""

from __future__ import annotations

import errno
from pathlib import Path

from buoy.errors import StoreUnusable, Unavailable

_ADVICE = {
    errno.ENOSPC: "its disk is full; free some space",
    errno.EDQUOT: "its owner's disk quota is used up; free some space",
    errno.EACCES: "this user may not write there; change its permissions or name another folder",
    errno.EPERM: "this user or this kind of file system does not allow it; name a folder on a local disk",
    errno.EROFS: "it is on a read-only file system; name another folder",
    errno.ENOTDIR: "a part of its path is a file, not a directory; name another folder",
    errno.EEXIST: "there is a file of that name, not a directory; name another folder",
    errno.ENOTSUP: "its file system cannot link files; name a folder on a local disk",
    errno.ENAMETOOLONG: "its file system does not allow names of that length; name a folder on a local disk",
    errno.EISDIR: "a directory stands where a file should be; something else writes there",
}


def folder_problem(root: Path, error: OSError) -> StoreUnusable | Unavailable:
    """The error of that folder, for the store's caller."""
    advice = _ADVICE.get(error.errno or 0)
    if advice is not None:
        return StoreUnusable(f"the folder {root} cannot be used as a store: {advice} ({error.strerror})")
    return Unavailable(f"the folder {root} gave no clear answer: {error}")
