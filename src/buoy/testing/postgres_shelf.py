"""The PostgreSQL store of one crash scenario: a schema of its own, in the database of the configured store.

Invariants: the schema is new and is dropped with its scenario, so that no other schema is touched. The clock of the
scenario is the store's clock, so that only skipped time passes. The address stays in the configuration: nothing writes
it down.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

import psycopg

from buoy.config import STORE_VARIABLE, configured_store
from buoy.errors import BadInput
from buoy.ports.host import Clock
from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.errors import translated
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.postgres_clock import timed_session, use_test_clock

_SCHEMES = ("postgresql://", "postgres://")


class _Unheard(PostgresStore):
    """A store without notifications: their timers would move the clock of the scenario."""

    def _changed(self) -> None:
        """Nothing: the processes of a scenario have hints of their own."""


class PostgresShelf:
    """A schema for the scenario that has this folder."""

    def __init__(self, folder: Path) -> None:
        # The processes of a scenario know its folder, so they agree on the name.
        digest = hashlib.sha256(str(folder).encode()).hexdigest()[:20]
        self._url = _with_schema(_database(), f"buoy_crashtest_{digest}")

    def make(self) -> None:
        use_test_clock(self._url)

    async def open(self, clock: Clock) -> PostgresStore:
        return await _Unheard.open(self._url, clock=clock, session=timed_session(clock))

    def drop(self) -> None:
        """Removes the schema with all that is in it. A schema that is not there is no error."""
        address = address_of(self._url)
        try:
            with psycopg.connect(address.conninfo, autocommit=True) as raw:
                Connection(raw, {}).apply(f"DROP SCHEMA IF EXISTS {address.quoted} CASCADE".encode())
        except psycopg.Error as error:
            raise translated(error, f"the schema {address.schema} of a crash test") from error


def _database() -> str:
    url = configured_store()
    if not url.startswith(_SCHEMES):
        raise BadInput(
            f"no PostgreSQL database for the crash test: the configured store is {url.partition(':')[0]}; "
            f"set {STORE_VARIABLE} to 'postgresql://user@host/database'"
        )
    return url


def _with_schema(url: str, schema: str) -> str:
    head, _, query = url.partition("?")
    options = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name != "schema"]
    return f"{head}?{urlencode([*options, ('schema', schema)], quote_via=quote)}"
