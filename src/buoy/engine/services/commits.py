"""Commits: the certain outcome of an append, and of a message. Every place that appends comes by here.

Invariants: after an unclear answer the store is asked what is in the log, by number and nonce, before anything is
written again or concluded. What is written again is the same write, with the same nonce: it is at most once.
`Unavailable` is raised only if the outcome cannot be known, `NotWritten` if no try can have written. The error of a
store that a person must repair is raised without further tries, if the write does not stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from buoy.core.limits import UNCLEAR_PAUSE_MAX_S, UNCLEAR_PAUSE_S, UNCLEAR_TRIES_MAX
from buoy.core.log.append import Appended
from buoy.errors import NotWritten, Unavailable
from buoy.ports.records import Committed, Message, Outcome, Receipt, TaskChange, Write
from buoy.ports.store import Store

# Called with each error on the way to a certain outcome.
Note = Callable[[Exception], None]


def write_of(appended: Appended, task: TaskChange | None) -> Write:
    """An append as one commit, with what becomes of the run's task."""
    return Write(appended.run_id, appended.after_seq, appended.events, appended.document, task)


async def commit_surely(store: Store, write: Write) -> bool:
    """Whether this write is in the log now. Raises `Unavailable` if that cannot be known."""
    (outcome,) = await commit_all_surely(store, [write])
    return isinstance(outcome, Committed)


async def commit_all_surely(
    store: Store,
    writes: Sequence[Write],
    *,
    doubt: Exception | None = None,
    tries: int | None = UNCLEAR_TRIES_MAX,
    note: Note | None = None,
) -> list[Outcome]:
    """The certain outcome of each write. `doubt`: why an earlier try is unclear. `tries` None: as many as it takes."""
    known: dict[int, Outcome] = {}
    pause_s = UNCLEAR_PAUSE_S
    unclear = doubt is not None and not isinstance(doubt, NotWritten)
    for attempt in count(1):
        try:
            if doubt is not None:
                await _read_back(store, writes, known)
                if tries is not None and not isinstance(doubt, Unavailable) and len(known) < len(writes):
                    break
            await _try(store, writes, known)
            return [known[place] for place in range(len(writes))]
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is unclear, and is read back
            doubt = error
            unclear = unclear or not isinstance(error, NotWritten)
            if note is not None:
                note(error)
            if attempt == tries:
                break
        if attempt > 1:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, UNCLEAR_PAUSE_MAX_S)
    assert doubt is not None, "only an error ends the loop"
    raise _of_all_tries(doubt, unclear=unclear)


def _of_all_tries(last: Exception, *, unclear: bool) -> Exception:
    """The last error of several tries. That it wrote nothing says nothing about an earlier, unclear one."""
    return Unavailable(str(last)) if unclear and isinstance(last, NotWritten) else last


async def _try(store: Store, writes: Sequence[Write], known: dict[int, Outcome]) -> None:
    """Commits what has no outcome yet. A store may call the winner a loser (a write sent twice): nonces tell."""
    places = [place for place in range(len(writes)) if place not in known]
    answers = await store.commit([writes[place] for place in places]) if places else []
    answered = dict(zip(places, answers, strict=True))
    fenced = [place for place, answer in answered.items() if type(answer) is not Committed]
    if fenced:
        for place, found in zip(fenced, await store.landed([writes[place] for place in fenced]), strict=True):
            answered[place] = found or answered[place]
    known.update(answered)


async def _read_back(store: Store, writes: Sequence[Write], known: dict[int, Outcome]) -> None:
    """Asks what an unclear commit has done. A write that is not in the log has no outcome yet."""
    places = [place for place in range(len(writes)) if place not in known]
    for place, found in zip(places, await store.landed([writes[place] for place in places]), strict=True):
        if found is not None:
            known[place] = found


async def send_surely(store: Store, message: Message) -> Receipt:
    """Sends a message. A twin that an unclear try of this call left in the inbox is no duplicate, but this message."""
    pause_s, unclear = UNCLEAR_PAUSE_S, False
    for attempt in count(1):
        try:
            receipt = await store.send(message)
            if attempt > 1 and receipt.duplicate and await _is_there(store, message, receipt.number):
                return Receipt(receipt.number)
            return receipt
        except Unavailable as error:
            unclear = unclear or not isinstance(error, NotWritten)
            if attempt == UNCLEAR_TRIES_MAX:
                raise _of_all_tries(error, unclear=unclear) from error
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, UNCLEAR_PAUSE_MAX_S)
    raise AssertionError("the last try returns or raises")


async def _is_there(store: Store, message: Message, number: int) -> bool:
    """Whether the message of that number is this one, and not another one with its dedupe id."""
    found = await store.inbox(message.run_id, after=number - 1)
    # A store with a clock of its own dates the message by it, and a server puts the name of the caller before `by`.
    return any(
        (each.number, each.kind, bytes(each.body)) == (number, message.kind, bytes(message.body))
        and (each.by or "").endswith(message.by or "")
        and (store.has_clock or each.sent_at == message.sent_at)
        for each in found
    )
