"""Answers: what the server says to a statement that was sent, awaited without a thread.

Invariants: libpq's own calls without blocking, on a session that the caller holds alone. The caller's thread waits for
a bounded time at most; the rest of the wait is the event loop's. A session whose answer was not awaited to its end is
of no more use, and its holder closes it.
"""

from __future__ import annotations

import asyncio
import select

import psycopg
from psycopg import pq

from buoy.stores.postgres.connection import Connection

FALSE, TRUE = b"\x00", b"\x01"


class Answer:
    """The one value that a statement gives."""

    def __init__(self, session: Connection) -> None:
        self._server = session.raw.pgconn
        self._unsent = bool(self._server.flush())

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

        def look() -> None:
            if arrived.done():
                return
            try:
                if self._taken_in():
                    arrived.set_result(None)
                elif not self._unsent:
                    loop.remove_writer(line)
            except psycopg.Error as error:
                arrived.set_exception(error)

        loop.add_reader(line, look)
        if self._unsent:
            loop.add_writer(line, look)
        try:
            await arrived
        finally:
            loop.remove_reader(line)
            loop.remove_writer(line)

    def value(self) -> bytes | None:
        """The value of an answer that is here; an error of the server is raised."""
        result = self._server.get_result()
        while self._server.get_result() is not None:
            pass
        if result is None:
            raise psycopg.OperationalError("the server has closed the connection")
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise psycopg.errors.error_from_result(result)
        return result.get_value(0, 0)

    def _taken_in(self) -> bool:
        """Reads what is there, sends what is left, and tells whether the answer is complete."""
        self._server.consume_input()
        if self._unsent:
            self._unsent = bool(self._server.flush())
        return not self._server.is_busy()
