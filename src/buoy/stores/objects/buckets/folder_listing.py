"""Folder listing: the files of a directory as keys in the order of a bucket.

Invariants: keys come in the byte order of whole keys, as S3 has it. A listing begins in the folder that its prefix
names: what one run costs does not grow with the number of others. Names that are no keys are passed over.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from buoy.errors import CorruptLog
from buoy.stores.objects.bucket import is_key
from buoy.stores.objects.layout import WORKFLOW

# Of the bucket itself, at the top of its directory.
OWN_NAMES = frozenset({".tmp", ".locks", ".poke", "runners-locks"})
# Errors of reading that concern a single file or folder, and say nothing about the others.
_OF_ONE_OBJECT = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.EIO})


def keys_below(root: Path, prefix: str, after: str) -> Iterator[str]:
    """The keys with that prefix that are greater than `after`."""
    return _walk(root, prefix[: prefix.rfind("/") + 1], prefix, after)


def foreign_names(root: Path, prefix: str) -> Iterator[str]:
    """Names that are no keys, below a prefix that is a whole folder; with an empty one at the top only."""
    for name, is_folder in _entries(root, prefix):
        if not is_key(f"{prefix}{name}"):
            yield f"{prefix}{name}"
        elif is_folder and prefix:
            yield from foreign_names(root, f"{prefix}{name}/")


def of_one_object(error: OSError, key: str) -> Exception:
    """What is wrong with one object only: something else is in its place, or this user may not read it."""
    if error.errno in _OF_ONE_OBJECT:
        return CorruptLog(f"{key} cannot be read: {error.strerror}")
    return error


def _walk(root: Path, folder: str, prefix: str, after: str) -> Iterator[str]:
    for name, is_folder in _entries(root, folder):
        if not is_key(f"{folder}{name}"):
            continue
        key = f"{folder}{name}/" if is_folder else f"{folder}{name}"
        if is_folder:
            # Everything below has `key` as its beginning: skip what cannot match or is not after `after`.
            if (key.startswith(prefix) or prefix.startswith(key)) and (key > after or after.startswith(key)):
                yield from _walk(root, key, prefix, after)
        elif key.startswith(prefix) and key > after:
            yield key


def _entries(root: Path, folder: str) -> Sequence[tuple[str, bool]]:
    try:
        with os.scandir(root / folder) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if folder.startswith(WORKFLOW) and folder != WORKFLOW:
            raise of_one_object(error, folder) from error
        raise
    if not folder:
        entries = [entry for entry in entries if entry[0] not in OWN_NAMES]
    # 'a/' sorts after 'a-' and 'a.', and before 'a0': a folder counts with its slash.
    return sorted(entries, key=lambda entry: entry[0] + "/" if entry[1] else entry[0])
