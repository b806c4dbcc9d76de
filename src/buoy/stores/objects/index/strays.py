"""Strays: objects that do not belong where they stand: files that Buoy did not write, and entries without a truth."""

from __future__ import annotations

import re

from buoy.core.ids import RunId
from buoy.ports.maintenance import IndexTrouble
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import LATE_AFTER_S
from buoy.stores.objects.segments import segment_of

# Longer than the oldest entry whose writer has not written it again.
SURE_AFTER_S = LATE_AFTER_S + 5.0
STRAY = "stray file"
FOREIGN = "not ours"
_NUMBERED = re.compile(r"[0-9]{12,18}\.json")
_HASH = re.compile(r"[0-9a-f]{32}")


async def stray_of(bucket: Bucket, run_id: RunId) -> IndexTrouble | None:
    """Names below the run's prefix that Buoy does not write there."""
    prefix = layout.run_prefix(run_id)
    names = [name for name in await bucket.list(prefix) if not belongs(name, run_id)]
    names += await bucket.foreign(prefix)
    if not names:
        return None
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    text = f"{names[0]}{more}: not written by Buoy, which passes over it; move it away"
    return IndexTrouble(STRAY, text, names[0], run_id, mendable=False)


def strange(key: str) -> IndexTrouble:
    """A name that stands where entries of Buoy stand, and is none."""
    return IndexTrouble(FOREIGN, f"{key}: not written by Buoy, which passes over it; move it away", key, mendable=False)


def alone(key: str, run_id: RunId | None) -> IndexTrouble:
    """An entry whose truth is not there. Its writer may be about to write that."""
    return IndexTrouble("without truth", f"{key} points at nothing", key, run_id, waits_s=SURE_AFTER_S)


def left(key: str, run_id: RunId | None, *, stale: bool = False) -> IndexTrouble:
    """An entry that the truth has passed. `stale`: its readers ask the truth, and drop it."""
    return IndexTrouble("left over", f"{key} is left over from an earlier state", key, run_id, stale=stale)


def belongs(key: str, run_id: RunId) -> bool:
    """Whether an object below a run's prefix is one that Buoy writes there."""
    folder, _, name = key.removeprefix(layout.run_prefix(run_id)).partition("/")
    match folder:
        case "state.json":
            return not name
        case "log" | "inbox":
            return _NUMBERED.fullmatch(name) is not None
        case "seg":
            return segment_of(key, run_id) is not None
        case "dedupe":
            return _HASH.fullmatch(name) is not None
        case "parts":
            copy, _, part = name.partition("/")
            return bool(copy) and _NUMBERED.fullmatch(part) is not None
        case _:
            return False
