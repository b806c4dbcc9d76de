"""Checks of a PostgreSQL server: what makes commits durable, and what an administrator should know about it."""

from __future__ import annotations

from buoy.ports.maintenance import StoreCheck
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.opening import Opened
from buoy.stores.postgres.statements import load_migrations

# Above this part of all connections a new worker may find none.
_CONNECTIONS_FULL = 0.9


def server_checks(connection: Connection, opened: Opened) -> list[StoreCheck]:
    """All checks, in the order in which they are shown."""
    row = connection.row("settings")
    assert row is not None
    fsync, full_page_writes, commit, connections_max, connections, standby, read_only, writer = row
    sound = fsync == full_page_writes == "on"
    settings = f"fsync {fsync}, full_page_writes {full_page_writes}, commits with synchronous_commit on"
    if commit not in ("on", "remote_apply"):
        settings += f" (the server's own setting is {commit}; each commit of Buoy raises it)"
    return [
        _schema(connection, opened),
        StoreCheck("durability", sound, settings),
        _access(standby=standby, read_only=read_only, writer=writer),
        _replicas(connection),
        _connections(connections, connections_max, pooled=opened.pooled),
        _dead_rows(connection, opened.address.schema),
        _long_transactions(connection),
        _triggers(connection, opened.address.schema),
    ]


def _trouble(name: str, text: str) -> StoreCheck:
    """A check that failed, and whose text says what a person can do."""
    return StoreCheck(name, False, text, by_person=True)


def _schema(connection: Connection, opened: Opened) -> StoreCheck:
    found, known = len(connection.rows("applied")), len(load_migrations(opened.address.quoted))
    return StoreCheck("schema", found >= known, f"schema {found}, this Buoy knows {known}")


def _access(*, standby: bool, read_only: bool, writer: bool) -> StoreCheck:
    if standby:
        return _trouble("access", "a standby, which only reads; name the primary or all hosts in the URL")
    if read_only:
        return _trouble("access", "transactions are read-only; reset default_transaction_read_only")
    # Sound for a person or a program that only looks.
    text = "reads and writes" if writer else "reads only: this role has no right to write, which a worker needs"
    return StoreCheck("access", True, text)


def missing_replica(connection: Connection) -> str | None:
    """The synchronous replicas that the server demands, if none of them is connected: then no commit returns."""
    demanded, rows = _demanded_replicas(connection), connection.rows("replicas")
    connected = any(state in ("sync", "quorum", "unknown") for _, state, _ in rows)
    return None if connected or not demanded else demanded


def _demanded_replicas(connection: Connection) -> str:
    row = connection.row("demanded_replicas")
    assert row is not None
    return str(row[0])


def _replicas(connection: Connection) -> StoreCheck:
    """An asynchronous replica may be behind."""
    missing = missing_replica(connection)
    if missing is not None:
        text = (
            f"every commit waits: synchronous_standby_names is {missing!r}, and no such replica is connected; start "
            "one, or reset the setting"
        )
        return _trouble("replicas", text)
    rows = connection.rows("replicas")
    late = [(name, behind) for name, state, behind in rows if state not in ("sync", "quorum")]
    if not late:
        text = f"all synchronous: {', '.join(name for name, *_ in rows[:5])}" if rows else "no replicas"
        return StoreCheck("replicas", True, text)
    shown = ", ".join(f"{name} ({behind:,} bytes behind)" for name, behind in late[:5])
    lost = "a fail-over to one loses the last commits, and their steps run again"
    advice = (
        "set synchronous_standby_names" if not _demanded_replicas(connection) else "fail over to synchronous ones only"
    )
    return StoreCheck("replicas", True, f"asynchronous: {shown}; {lost}; {advice}")


def _connections(used: int, most: int, *, pooled: bool) -> StoreCheck:
    text = f"{used} of {most} connections in use"
    if pooled:
        return StoreCheck("connections", True, f"{text}, through a pooler: no notifications, workers poll")
    if used < _CONNECTIONS_FULL * most:
        return StoreCheck("connections", True, text)
    return _trouble("connections", f"{text}; raise max_connections or use a pooler: a worker needs up to 5")


def _dead_rows(connection: Connection, schema: str) -> StoreCheck:
    rows = connection.rows("dead_rows", (schema,))
    if not rows:
        return StoreCheck("vacuum", True, "no table has more dead rows than live ones")
    shown = ", ".join(f"{name} {dead:,} dead, {live:,} live" for name, live, dead in rows)
    return _trouble("vacuum", f"{shown}; see that autovacuum runs, and end long transactions")


def _long_transactions(connection: Connection) -> StoreCheck:
    rows = connection.rows("long_transactions")
    if not rows:
        return StoreCheck("transactions", True, "none is older than 15 minutes")
    shown = ", ".join(f"process {pid} for {age_s // 60} min" for pid, age_s in rows)
    return _trouble("transactions", f"{shown}; end them with pg_terminate_backend: they hold up vacuum")


def _triggers(connection: Connection, schema: str) -> StoreCheck:
    """A trigger changes or deletes rows behind every commit, and Buoy has none."""
    rows = connection.rows("foreign_triggers", (schema,))
    if not rows:
        return StoreCheck("triggers", True, "none")
    shown = ", ".join(f"{name} on {table}" for name, table in rows[:10])
    return _trouble("triggers", f"{shown}; Buoy has no triggers: look at each and drop it")
