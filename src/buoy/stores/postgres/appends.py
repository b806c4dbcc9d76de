"""Appends: the commonest commit, sent on the caller's thread and mostly answered there.

Handing it to a thread and its outcome back costs as much processor time again as the whole exchange, and two
wake-ups: sequential steps reached 0.35 of the driver's single-row commits on an idle machine.
Invariants: the caller's thread waits for the server for `QUICK_S` at most, and only while answers come sooner than that
on average. Else the event loop waits, and the caller is suspended. Other kinds of commits, large ones, and what the
server did not take are left to the lane.
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
from buoy.stores.postgres.errors import collided, translated
from buoy.stores.postgres.lanes import WriteLane

# Above this average the server, not Python, is what takes the time: leave the event loop alone.
QUICK_S = 0.002
_AVERAGE_WEIGHT = 0.1
# More may not fit into the buffer of a socket, and its encoding takes longer than a thread switch.
BYTES_MAX = 32 * 1024


class Appends:
    """Appends one write at a time, on a session of the writers while they have nothing to do."""

    def __init__(self, lane: WriteLane, clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._average_s = 0.0

    async def commit(self, write: Write) -> bool:
        """Whether this write is committed now. False: it is not, and the lane has to do it or to tell why."""
        session = self._lane.borrow() if write.after_seq and write.task is None and not write.seen else None
        if session is None:
            return False
        answered = True
        try:
            values = _values(write)
            if values is None:
                return False
            answered = False
            done = await self._exchange(session, values)
            answered = True
            return done
        except psycopg.Error as error:
            # With a code it is the server's answer, and the session may be of use.
            answered = error.sqlstate is not None
            if answered and collided(error):
                return False
            raise translated(error, self._lane.store_name) from error
        finally:
            if not answered:
                # The answer may still come, and the next statement would take it for its own.
                session.close()
            self._lane.give_back(session)

    async def _exchange(self, session: Connection, values: list[bytes | None]) -> bool:
        began = self._clock.monotonic()
        session.send("append_run", values)
        answer = Answer(session)
        if not answer.came(QUICK_S if self._average_s < QUICK_S else 0.0):
            await answer.arrival()
        self._average_s += _AVERAGE_WEIGHT * (self._clock.monotonic() - began - self._average_s)
        return answer.value() == TRUE


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
