"""Opening a PostgreSQL store: how a session begins, and the first one that checks the server.

Invariant: no session depends on a setting that it made. What a commit needs is set inside of each transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from traceback import clear_frames
from typing import NamedTuple

import psycopg

from buoy.stores.postgres.address import Address, shown_name
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.errors import translated, unreachable
from buoy.stores.postgres.schema import prepare
from buoy.stores.postgres.statements import load_migrations, load_statements

# Makes a session out of a fresh connection; tests give it a clock.
Session = Callable[[psycopg.Connection[tuple[object, ...]], Mapping[str, bytes]], Connection]


class Opened(NamedTuple):
    """What all sessions of a store share."""

    address: Address
    name: str
    sql: Mapping[str, bytes]
    # Something between pools sessions, so that notifications do not come through.
    pooled: bool


def open_database(address: Address, session: Session = Connection) -> Opened:
    """Checks the server and the schema, and makes the schema if it is not there."""
    sql = load_statements(address.quoted, address.quoted_channel)
    try:
        first = connect(address, sql, session)
    except psycopg.Error as error:
        # A service file or a variable may name the host: libpq tells only a session what it used.
        known = shown_name(address.schema, address.places) if "host" in address.places else None
        raise unreachable(error, known or f"the PostgreSQL store of schema {address.schema}") from error
    name = shown_name(address.schema, {**first.raw.info.get_parameters(), **address.places})
    try:
        pooled = prepare(first, address, load_migrations(address.quoted), name)
    except psycopg.Error as error:
        # Opening may be repeated: a session that broke leaves nothing to read back.
        translate = unreachable if first.raw.closed else translated
        raise translate(error, name) from error
    finally:
        first.close()
    return Opened(address, name, sql, pooled)


def connect(address: Address, sql: Mapping[str, bytes], session: Session = Connection) -> Connection:
    """One more session."""
    try:
        raw = psycopg.connect(address.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        # psycopg keeps the line of an attempt that timed out in a cycle of objects. A server that hung would make a
        # session of it later, until Python collects garbage: a worker had 10 sessions after 45 s.
        clear_frames(error.__traceback__)
        raise
    return session(raw, sql)
