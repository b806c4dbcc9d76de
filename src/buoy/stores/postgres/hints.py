"""Hints: notifications between the processes of a store. They save waiting, and nothing rests on them.

Invariants: a notification is sent after the commit and outside of it, since a NOTIFY inside takes a lock of the whole
database at commit. One process sends one in `NOTIFY_EVERY_S` at most; a store that closes sends the one that is due.
Behind a pooler nothing listens: the loops of a runner then look once a second.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable

import psycopg

from buoy.errors import Problem
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.lanes import Connect, ReadLane

_LOG = logging.getLogger("buoy.stores")

NOTIFY_EVERY_S = 0.02
# How long the listener waits before it looks whether the store was closed, and before it connects again.
LISTEN_S = 5.0
RECONNECT_S = 1.0
# A store that closes waits so long for its last hint: less than the others need to find the change without it.
CLOSE_S = 0.5


class Notifier:
    """Sends hints to the other processes, on the reader's session."""

    def __init__(self, reader: ReadLane, channel: str) -> None:
        self._reader = reader
        self._channel = channel
        # Tells the hints of this process from others.
        self.token = secrets.token_hex(8)
        self._pending: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._resting = False

    def notify(self) -> None:
        """Something changed that others wait for. Callable on a loop only."""
        if self._pending is not None:
            return
        loop = asyncio.get_running_loop()
        self._pending = loop.call_later(NOTIFY_EVERY_S if self._resting else 0.0, self._send, loop)

    async def close(self) -> None:
        """Sends the hint that is due. A command that starts a run and ends would else leave it to the next look."""
        if self._pending is not None:
            self._pending.cancel()
            self._send(asyncio.get_running_loop())
        if self._sending:
            await asyncio.wait(self._sending, timeout=CLOSE_S)

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pending, self._resting = None, True
        loop.call_later(NOTIFY_EVERY_S, self._rested)
        task = loop.create_task(self._notify(), name="buoy-notify")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _rested(self) -> None:
        self._resting = False

    async def _notify(self) -> None:
        def notify(connection: Connection) -> None:
            connection.run("notify", (self._channel, self.token))

        try:
            await self._reader.read(notify)
        except Problem as problem:
            _LOG.debug("no hint was sent, others find the change at their next look: %s", problem)


class Listener:
    """Waits for the hints of other processes, on a session and in a thread of its own."""

    def __init__(self, connect: Connect, token: str, heard: Callable[[], None]) -> None:
        self._connect = connect
        self._token = token
        self._heard = heard
        self._closing = threading.Event()
        self._session: Connection | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to listen. Twice is once."""
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._listen, name="buoy-listener", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the thread, which closes its session."""
        self._closing.set()
        session, thread = self._session, self._thread
        if session is not None:
            session.hang_up()
        if thread is not None:
            thread.join(LISTEN_S)

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                self._session = self._connect()
                self._hear(self._session)
            except psycopg.Error as error:
                _LOG.debug("no hints now, the loops look once a second: %s", error)
            finally:
                if self._session is not None:
                    self._session.close()
                    self._session = None
            self._closing.wait(RECONNECT_S)

    def _hear(self, session: Connection) -> None:
        session.run("listen")
        # What came before the first LISTEN was missed.
        self._heard()
        while not self._closing.is_set():
            for notification in session.raw.notifies(timeout=LISTEN_S, stop_after=1):
                if notification.payload != self._token:
                    self._heard()
