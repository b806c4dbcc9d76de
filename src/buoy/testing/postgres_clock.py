"""A PostgreSQL store whose clock a test moves.

The schema tells the time by one function. `use_test_clock` replaces it by one that reads a setting of the session, and
`TimedSession` sends that setting whenever the test's clock has moved. Other sessions have the server's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from buoy.ports.host import Clock
from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.connection import Connection, Values
from buoy.stores.postgres.opening import Session, connect, open_database

_REPLACE = """CREATE OR REPLACE FUNCTION {schema}.store_now() RETURNS double precision LANGUAGE sql STABLE
    AS $$ SELECT coalesce(nullif(current_setting('buoy_test.now', true), '')::double precision,
        extract(epoch FROM clock_timestamp())::double precision) $$"""
_SET = "SELECT set_config('buoy_test.now', %s, false)"


def use_test_clock(url: str) -> None:
    """Makes the store at that address, and gives it the clock of its sessions."""
    address = address_of(url)
    opened = open_database(address)
    session = connect(address, opened.sql)
    try:
        session.raw.execute(_REPLACE.replace("{schema}", address.quoted).encode())
    finally:
        session.close()


def timed_session(clock: Clock) -> Session:
    """Sessions of a store that tells the time of `clock`."""

    def begin(raw: psycopg.Connection[tuple[Any, ...]], sql: Mapping[str, bytes]) -> Connection:
        return TimedSession(raw, sql, clock)

    return begin


class TimedSession(Connection):
    """A session that brings the clock of the test with it."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]], sql: Mapping[str, bytes], clock: Clock) -> None:
        super().__init__(raw, sql)
        self._clock = clock
        self._sent: float | None = None

    def run(self, name: str, values: Values = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        self._tell_time()
        return super().run(name, values)

    def send(self, name: str, values: Sequence[bytes | None]) -> None:
        self._tell_time()
        super().send(name, values)

    def _tell_time(self) -> None:
        now = self._clock.now()
        if now != self._sent:
            self.raw.execute(_SET, (repr(now),))
            self._sent = now
