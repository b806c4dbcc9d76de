"""Room in an inbox: how many messages may be sent to a run that it has not consumed.

Invariant: signals never take the room that everything else needs. A run whose inbox is full of signals can still be
answered, paused and cancelled, and hears of its children's ends.
"""

from __future__ import annotations

from buoy.core import limits
from buoy.core.ids import RunId
from buoy.core.log.document import Document
from buoy.errors import InboxFull

_COUNTED_SINCE = 3


def may_be_full(head: int) -> bool:
    """Whether an inbox that ends at this number may be full: only then a sender has to read the run's document."""
    return head >= limits.INBOX_UNREAD_MAX


def check_room(run_id: RunId, kind: str, head: int, document: Document) -> None:
    """Raises `InboxFull` if too many messages wait. `head` is the number of the last one.

    A document that does not count what its log consumed refuses nothing: the next commit of the run writes one that
    does.
    """
    if document.v < _COUNTED_SINCE:
        return
    waiting = head - document.consumed_count
    limit = limits.INBOX_UNREAD_MAX + (0 if kind == "signal" else limits.INBOX_RESERVE)
    if waiting >= limit:
        raise InboxFull(
            f"the inbox of run {run_id} is full: {waiting:,} messages wait there and the limit for a {kind} is "
            f"{limit:,}; see `buoy why {run_id}` for what the run waits for, and send again when it has consumed some"
        )
