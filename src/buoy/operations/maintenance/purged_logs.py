"""Purged logs: removes what the commands of purged runs wrote, on the machine where the purge is asked for.

Invariants: only a folder that stands directly in the store's log folder, is no link, and is named like a run that has a
tombstone; only files in it that Buoy itself made. Whatever else lies there is left, and so is the folder around it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from buoy.core.ids import RunId, check_run_id
from buoy.core.step_logs import parse_log_name
from buoy.errors import BadInput

# Folders that one purge looks at for what an earlier one left.
_LOOK_MAX = 10_000


def remove_logs(folder: Path, run_id: RunId) -> bool:
    """Whether the logs of that run were there and are gone now."""
    place = folder / check_run_id(run_id)
    if not _is_own_folder(folder, place):
        return False
    for path in list(place.iterdir()):
        if _is_ours(path):
            path.unlink(missing_ok=True)
    try:
        place.rmdir()
    except OSError:
        return False  # the folder has files of other origin
    return True


def runs_with_logs(folder: Path) -> Iterator[RunId]:
    """The runs of which there is a log folder, the first ten thousand of them."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(_LOOK_MAX), strict=False):
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield check_run_id(entry.name)
            except BadInput:
                continue  # no run is called so


def _is_own_folder(folder: Path, place: Path) -> bool:
    return place.is_dir() and not place.is_symlink() and place.resolve().parent == folder.resolve()


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    return parse_log_name(path.name) is not None or path.suffix in (".result", ".lock", ".end", ".told", ".draft")
