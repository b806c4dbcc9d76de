"""Appends: the commonest commit, sent on the caller's thread and mostly answered there.

Handing it to a thread and its outcome back costs as much processor time again as the whole exchange, and two
wake-ups: sequential steps reached 0.35 of the driver's single-row commits on an idle machine.
Invariants: the caller's thread waits for the server for `QUICK_S` at most, and only while answers come sooner than that
on average. Else the event loop waits, and the caller is suspended. Other kinds of commits, large ones, and what the
server did not take are left to the lane.
A session that appends often has the server keep the plan: parsing and planning were a fifth of the server's time for
an append. A command that appends a few times saves the two round trips for that.
"""

from __future__ import annotations

import psycopg

from buoy.core.log.codec import encode_events
from buoy.core.log.lifecycle import TERMINAL
from buoy.ports.host import Clock
from buoy.ports.records import Write
from buoy.stores.postgres.answers import FALSE, TRUE, Answer
from buoy.stores.postgres.commit import encode_document
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.errors import UNPREPARED, code_of, collided, translated
from buoy.stores.postgres.lanes import WriteLane

# Above this average the server, not Python, is what takes the time: leave the event loop alone.
QUICK_S = 0.002
_AVERAGE_WEIGHT = 0.1
# More may not fit into the buffer of a socket, and its encoding takes longer than a thread switch.
BYTES_MAX = 32 * 1024
# After so many appends with the text of the statement its session prepares it.
PREPARE_AFTER = 10
_APPEND = "append_run"


class Appends:
    """Appends one write at a time, on a session of the writers while they have nothing to do."""

    def __init__(self, lane: WriteLane, clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._average_s = 0.0
        self._unprepared = 0

    async def commit(self, write: Write) -> bool:
        """Whether this write is committed now. False: it is not, and the lane has to do it or to tell why."""
        if not write.after_seq or write.task is not None or write.seen:
            return False
        if self._unprepared >= PREPARE_AFTER:
            self._unprepared = 0
            # The lane works on the session that was given back last, and that is borrowed next.
            await self._lane.write(_prepare)
        values = _values(write)
        session = None if values is None else self._lane.borrow()
        if values is None or session is None:
            return False
        whole = False
        try:
            self._unprepared += session.undecided(_APPEND)
            session.send(_APPEND, values)
            answer = Answer(session)
            await self._wait(answer)
            whole = answer.complete
            return answer.value() == TRUE
        except psycopg.Error as error:
            if whole and code_of(error) == UNPREPARED:
                session.forget(_APPEND)
                return False
            if whole and collided(error):
                return False
            raise translated(error, self._lane.store_name) from error
        finally:
            if not whole:
                # The answer may still come, and the next statement would take it for its own.
                session.close()
            self._lane.give_back(session)

    async def _wait(self, answer: Answer) -> None:
        began = self._clock.monotonic()
        if not answer.came(QUICK_S if self._average_s < QUICK_S else 0.0):
            with self._lane.silence.watch():
                await answer.arrival()
        self._average_s += _AVERAGE_WEIGHT * (self._clock.monotonic() - began - self._average_s)


def _prepare(session: Connection) -> None:
    session.prepare(_APPEND)


def _values(write: Write) -> list[bytes | None] | None:
    """The parameters of `append_run` in binary form. None: too large."""
    document, events = encode_document(write.document), encode_events(write.events)
    if len(document) + len(events) > BYTES_MAX:
        return None
    status, first, last = write.document.status, write.events[0], write.events[-1]
    return [
        write.run_id.encode(),
        write.after_seq.to_bytes(8, "big"),
        last.seq.to_bytes(8, "big"),
        status._value_.encode(),
        TRUE if status in TERMINAL else FALSE,
        document,
        None if first.nonce is None else first.nonce.encode(),
        events,
    ]
