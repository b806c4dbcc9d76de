"""Storage choice: the data of the store that a plan names."""

from __future__ import annotations

from simulator.host import SimClock
from simulator.object_storage import ObjectStorage
from simulator.plan import Plan
from simulator.storage import SqliteStorage, Storage


def make_storage(plan: Plan, clock: SimClock) -> Storage:
    """The data of this plan's store, with a clock of its own if the plan says so."""
    own_clock = clock if plan.store_clock else None
    match plan.store:
        case "sqlite":
            return SqliteStorage(own_clock)
        case "postgres":
            # Loaded when it is played: it needs the extra `postgres` and a server.
            from simulator.postgres_storage import PostgresStorage

            return PostgresStorage(clock)
        case _:
            return ObjectStorage(plan.single_host, own_clock)
