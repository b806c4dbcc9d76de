"""The schema of a PostgreSQL store: how it is made, and which ones this code can use.

Invariants: migrations run in one transaction under an advisory lock, so that processes that open a new store at once do
not disturb each other. A released migration is never edited. A newer schema is used only if every migration that this
code does not know is additive.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from buoy.errors import StoreUnusable
from buoy.stores.postgres.address import Address
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.statements import SchemaMigration

OLDEST_SERVER = 140_000


def prepare(connection: Connection, address: Address, migrations: Sequence[SchemaMigration], name: str) -> bool:
    """Checks the server and brings the schema to this code's. Whether a pooler sits between.

    A pooler invents the process id that libpq is given.
    """
    pid, _, has_store = _check_server(connection, address, name)
    applied = _applied(connection) if has_store else {}
    if not _usable(applied, migrations, name):
        _migrate(connection, address, migrations, name)
    return pid != connection.raw.info.backend_pid


def _check_server(connection: Connection, address: Address, name: str) -> tuple[int, bool, bool]:
    row = connection.row("server", (address.schema, address.schema))
    assert row is not None
    fsync, full_page_writes, encoding, version, standby, pid, has_schema, has_store = row
    if version < OLDEST_SERVER:
        raise StoreUnusable(f"{name} is PostgreSQL {version // 10_000}; use {OLDEST_SERVER // 10_000} or newer")
    for setting, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
        if value != "on":
            raise StoreUnusable(
                f"{name} runs with {setting}={value}: a power cut destroys what was committed; "
                f"set {setting}=on and restart it"
            )
    if encoding != "UTF8":
        raise StoreUnusable(f"{name} has the encoding {encoding}; create the database with ENCODING 'UTF8'")
    if standby and not has_store:
        raise StoreUnusable(f"{name} is a standby without a store; name the primary")
    return pid, has_schema, has_store


def _applied(connection: Connection) -> dict[int, bool]:
    """The migrations of this store, each with whether it only added."""
    return dict(connection.rows("applied"))


def _usable(applied: dict[int, bool], migrations: Sequence[SchemaMigration], name: str) -> bool:
    """Whether nothing has to be done. Refuses what a newer Buoy changed in a way that this one cannot know."""
    known = len(migrations)
    changed = [number for number, additive in applied.items() if number > known and not additive]
    if changed:
        raise StoreUnusable(
            f"{name} has schema {max(applied)}, this Buoy knows {known}: a newer Buoy changed it; upgrade this one"
        )
    return all(each.number in applied for each in migrations)


def _migrate(connection: Connection, address: Address, migrations: Sequence[SchemaMigration], name: str) -> None:
    connection.run("begin")
    try:
        connection.run("lock_migrations", (address.schema,))
        _apply(connection, address, migrations, name)
        connection.run("commit")
    except BaseException:
        if not connection.raw.closed:
            connection.run("rollback")
        raise


def _apply(connection: Connection, address: Address, migrations: Sequence[SchemaMigration], name: str) -> None:
    """Under the lock: another process may have been quicker."""
    _, has_schema, has_store = _check_server(connection, address, name)
    if not has_schema:
        connection.run("make_schema")
    if not has_store:
        found = connection.row("foreign_tables", (address.schema,))
        if found is not None and found[0]:
            raise StoreUnusable(
                f"{name} already has tables of something else in the schema {address.schema}; "
                "name another one: '?schema=...'"
            )
        connection.run("make_migrations")
    applied = _applied(connection)
    for each in migrations:
        if each.number not in applied:
            try:
                connection.apply(each.TEXT)
            except psycopg.Error as error:
                error.add_note(f"in migration {each.number}, {each.name}")
                raise
            connection.run("note_migration", (each.number, each.name, each.additive))
