"""Opening a PostgreSQL store: processes that come at once make it together, and a server that is away is named."""

from __future__ import annotations

import gc
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from buoy.errors import Unavailable
from buoy.stores.postgres.address import address_of, shown_name
from buoy.stores.postgres.opening import Opened, open_database
from tests.patience import PATIENCE_S
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


def refusal(url: str) -> str:
    """What a person reads who names a server that is not there."""
    with pytest.raises(Unavailable) as found:
        open_database(address_of(url))
    return str(found.value)


def test_each_of_several_hosts_that_fail_is_named_once_with_its_reason(tmp_path: Path) -> None:
    hosts = [tmp_path / name for name in "ab"]
    said = refusal(f"postgresql://u:hidden@/x?host={hosts[0]},{hosts[1]}")
    assert "\n" not in said and "hidden" not in said and len(said) < 1_000
    reasons = "; ".join(f"{host}:5432: No such file or directory" for host in hosts)
    assert said.endswith(f": {reasons}; check the server, the address, the user and the password")


def test_a_host_without_a_port_is_shown_with_the_default_one() -> None:
    found = shown_name("buoy", {"host": "a,b,c", "port": "1,,2", "dbname": "x"})
    assert found == "postgresql://a:1,b:5432,c:2/x?schema=buoy"


def test_an_attempt_that_timed_out_leaves_no_line_to_the_server() -> None:
    """A server that hung would make a session of each such line later: more than a worker may have."""
    gc.disable()
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            said = refusal(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=2")
            line, _ = silent.accept()
            with line:
                line.settimeout(PATIENCE_S)
                while line.recv(4096):
                    pass  # what was sent before the client gave up
        assert "timeout" in said
    finally:
        gc.enable()
