"""Answers: what the server says to a statement that was sent, awaited without a thread.

Invariants: libpq's own calls without blocking, on a session that the caller holds alone. The caller's thread waits for
a bounded time at most; the rest of the wait is the event loop's. An answer is complete when the server is ready for the
next statement: only then is the transaction over. A session without a complete answer is of no more use, and its holder
closes it.
"""

from __future__ import annotations

import asyncio
import select

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult

from buoy.stores.postgres.connection import Connection

FALSE, TRUE = b"\x00", b"\x01"


class Answer:
    """The one value that a statement gives."""

    def __init__(self, session: Connection) -> None:
        self._server = session.raw.pgconn
        self._results: list[PGresult] = []
        self._unsent = bool(self._server.flush())
        self.complete = False

    def came(self, patience_s: float) -> bool:
        """Whether the answer is here, after waiting so long at most."""
        if self._unsent:
            return False
        line = select.poll()
        line.register(self._server.socket, select.POLLIN)
        return bool(line.poll(1000.0 * patience_s)) and self._taken_in()

    async def arrival(self) -> None:
        """Waits on the event loop."""
        loop, line = asyncio.get_running_loop(), self._server.socket
        arrived: asyncio.Future[None] = loop.create_future()

        def leave() -> None:
            loop.remove_reader(line)
            loop.remove_writer(line)

        def look() -> None:
            try:
                if not self._taken_in():
                    if not self._unsent:
                        loop.remove_writer(line)
                    return
            except psycopg.Error as error:
                arrived.set_exception(error)
            else:
                arrived.set_result(None)
            # At once: libpq may have closed the descriptor, and the next session gets its number.
            leave()

        loop.add_reader(line, look)
        if self._unsent:
            loop.add_writer(line, look)
        try:
            await arrived
        finally:
            if arrived.cancelled():
                leave()

    def value(self) -> bytes | None:
        """The value of an answer that is here. An error of the server is raised, also one at the transaction's end."""
        for result in self._results:
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise psycopg.errors.error_from_result(result)
        if not self._results:
            raise psycopg.OperationalError("the server gave no answer")
        return self._results[0].get_value(0, 0)

    def _taken_in(self) -> bool:
        """Reads what is there, sends what is left, and tells whether the answer is complete. It never waits: libpq is
        asked for a result only if it has one."""
        server = self._server
        server.consume_input()
        if self._unsent:
            self._unsent = bool(server.flush())
        while not server.is_busy():
            result = server.get_result()
            if result is None:
                self.complete = True
                return True
            self._results.append(result)
        return False
