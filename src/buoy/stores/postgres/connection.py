"""Connection: one session of a PostgreSQL store, and the statements of its schema.

Invariants: autocommit, so that one statement is one transaction in one round trip. No setting outlives a transaction,
and nothing is prepared behind a pooler: that may give every transaction another session.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeAlias

import psycopg
from psycopg import pq

Values: TypeAlias = Sequence[object] | Mapping[str, object]
Row: TypeAlias = tuple[Any, ...]

_PLACEHOLDER = re.compile(rb"%b")
_BINARY = 1


class Connection:
    """A session with the server, used by one thread at a time."""

    def __init__(self, raw: psycopg.Connection[Row], sql: Mapping[str, bytes]) -> None:
        self.raw = raw
        self.STATEMENTS = sql
        self._cursor = raw.cursor(binary=True)
        # Statements as libpq takes them.
        self._numbered: dict[str, bytes] = {}
        # Under which name the server keeps a statement. None: it does not, and is not asked again.
        self._kept: dict[str, bytes | None] = {}

    def run(self, name: str, values: Values = ()) -> psycopg.Cursor[Row]:
        """Executes a statement. The result is valid until the next one."""
        return self._cursor.execute(self.STATEMENTS[name], values or None)

    def send(self, name: str, values: Sequence[bytes | None]) -> None:
        """Sends a statement and waits for nothing. The values are in PostgreSQL's binary form, and so is the answer."""
        formats, kept = [_BINARY] * len(values), self._kept.get(name)
        if kept is None:
            self.raw.pgconn.send_query_params(self._text(name), values, None, formats, _BINARY)
        else:
            self.raw.pgconn.send_query_prepared(kept, values, formats, _BINARY)

    def undecided(self, name: str) -> bool:
        """Whether `prepare` has not been called for this statement."""
        return name not in self._kept

    def prepare(self, name: str) -> None:
        """Has the server parse and plan a statement once, for `send`. Behind a pooler this does nothing."""
        self._kept[name] = None
        pid = self.row("backend_pid")
        # A pooler invents the process id that libpq is given.
        if pid is None or pid[0] != self.raw.info.backend_pid:
            return
        text = self._text(name)
        # By its text: where a pooler escapes notice, a statement of this name from another process is the same one.
        kept = b"buoy_" + hashlib.sha256(text).hexdigest()[:32].encode()
        if self.raw.pgconn.prepare(kept, text).status == pq.ExecStatus.COMMAND_OK:
            self._kept[name] = kept

    def forget(self, name: str) -> None:
        """Sends the text of a statement again from now on: the server does not know its name."""
        self._kept[name] = None

    def _text(self, name: str) -> bytes:
        """The statement as libpq takes it."""
        text = self._numbered.get(name)
        if text is None:
            numbers = count(1)
            text = _PLACEHOLDER.sub(lambda _: b"$%d" % next(numbers), self.STATEMENTS[name])
            self._numbered[name] = text
        return text

    def rows(self, name: str, values: Values = ()) -> list[Row]:
        return self.run(name, values).fetchall()

    def row(self, name: str, values: Values = ()) -> Row | None:
        return self.run(name, values).fetchone()

    def count(self, name: str, values: Values = ()) -> int:
        """How many rows the statement changed."""
        return self.run(name, values).rowcount

    def apply(self, DEFINITION: bytes) -> None:
        """Carries out statements of a migration, in one transaction."""
        self.raw.execute(DEFINITION)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements, all or none. When it ends well they are durable."""
        self.run("begin")
        try:
            self.run("durable")
            yield
            self.run("commit")
        except BaseException:
            if not self.raw.closed:
                with suppress(psycopg.Error):  # the cause is on its way, and a broken session has rolled back
                    self.run("rollback")
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of one state."""
        self.run("begin_snapshot")
        try:
            yield
        finally:
            if not self.raw.closed:
                with suppress(psycopg.Error):  # as above
                    self.run("rollback")

    def hang_up(self) -> None:
        """Ends the session from another thread: a call that waits for the server ends with an error."""
        # A copy of the descriptor, so that closing it leaves libpq's open. Errors: the session is closed already.
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.raw.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.raw.close()
