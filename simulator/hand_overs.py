"""Hand-overs: what a process writes when it lets a run rest must be what the run's log amounts to.

Judged at the commit or the release itself, by a reading of its own: at the end of a story no run waits any more.
Pure, as `invariants`: a log in, complaints out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.ports.records import Released
from simulator.accounts import misread
from simulator.reading import parts_of, pause_of, shown, status_of

DOCUMENT = "documents tell what runs wait for"
DUE = "what rests is due in time"
SEEN = "only what was sent is called seen"
_ROUNDING_S = 0.001
_GOES_ON = ("running", "pending", "interrupted")


def wrong_document(log: Sequence[e.Event], doc: Document) -> Iterator[str]:
    """Where the document of a run that waits says something else than its log.

    The reading of its own knows no jobs, so batch runs are judged by `batch_world` alone.
    """
    if not doc.ended and doc.open and doc.placement != "batch":
        yield from misread([event for event in log if event.seq <= doc.head_seq], doc)


def asleep(log: Sequence[e.Event], change: Released) -> Iterator[str]:
    """Where a run is given back until a message comes, and would continue without one."""
    events = list(log)
    created = events[0].body if events else None
    if change.due_at is not None or not isinstance(created, e.WorkflowCreated) or created.placement == "batch":
        return
    seen = shown(events)
    parts = parts_of(seen)
    status = status_of(events, seen, parts)
    stands = status == "compensating" and all(part.due_at is None for part in parts.values() if part.ended is None)
    if (stands or status in _GOES_ON) and created.workflow != e.LOT_WORKFLOW:
        yield f"it is {status} at event {events[-1].seq}, and is given back without a time"


def wrong_due(log: Sequence[e.Event], change: Released) -> Iterator[str]:
    """Where a release wakes a resting run later than its first time comes. Asked where all clocks agree."""
    events = list(log)
    seen = shown(events)
    pause = pause_of(events)
    if any(isinstance(event.body, e.ENDINGS) for event in seen):
        return
    if pause is not None:
        first = pause.body.expires_at if isinstance(pause.body, e.Paused) else None
    else:
        left = (part.due_at for part in parts_of(seen).values() if part.ended is None and part.due_at is not None)
        first = min(left, default=None)
    if first is not None and (change.due_at is None or change.due_at > max(first, change.now) + _ROUNDING_S):
        yield f"it is given back until {change.due_at}, and its first time comes at {first}"
