"""Opening a PostgreSQL store: processes that come at once make it together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.opening import Opened, open_database
from tests.postgres_server import fresh_url

OPENERS = 6
STORES = 5


def test_of_many_that_open_a_new_store_at_once_none_is_refused() -> None:
    """A session that waited for the migrations' lock must not trust what it knew of the catalogue before."""
    for _ in range(STORES):
        address, start = address_of(fresh_url()), Barrier(OPENERS)

        def opened(_: int, start: Barrier = start, address: object = address) -> Opened:
            start.wait()
            return open_database(address)  # type: ignore[arg-type]

        with ThreadPoolExecutor(OPENERS) as threads:
            assert len(list(threads.map(opened, range(OPENERS)))) == OPENERS
