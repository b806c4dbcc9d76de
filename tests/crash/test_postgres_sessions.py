"""How many sessions real workers have on PostgreSQL under load: at most five for each process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.store import SESSIONS_MAX
from tests.patience import LOOK_S, PATIENCE_S, wait_until
from tests.postgres_server import fresh_schema, query, server

from .flows import WITNESS
from .test_postgres_faults import start

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
RUNS = 60
# One that writes, one that reads and one that listens: a worker keeps them for its life.
LASTING = 3
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"


@contextmanager
def most_sessions(name: str) -> Iterator[Callable[[], int]]:
    """Counts the sessions of that name again and again. Gives the most so far."""
    seen, over = [0], threading.Event()

    def watch() -> None:
        with psycopg.connect(address_of(server().url("x")).conninfo, autocommit=True) as session:
            while not over.wait(LOOK_S):
                (count,) = session.execute(_SESSIONS, (name,)).fetchone() or (0,)
                seen.append(count)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: max(seen)
    finally:
        over.set()
        thread.join(PATIENCE_S)


@pytest.mark.parametrize("processes", [1, 2])
def test_workers_under_load_have_at_most_five_sessions_each(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WITNESS, str(tmp_path / "witness"))
    name = fresh_schema()
    url = server().url(name)
    start(url, RUNS, span_s=0.02)
    words = [sys.executable, "-m", "buoy", "worker", str(ROOT / "tests/crash/flows.py"), "--processes", str(processes)]
    named = server().url(name, application_name=name)
    with most_sessions(name) as most:
        worker = subprocess.Popen(
            words,
            env={**os.environ, "BUOY_STORE": named, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: query(url, "SELECT count(*) FROM {schema}.tasks") == [(0,)], "all runs to end")
            wait_until(lambda: most() >= LASTING * processes, "all workers to have sessions")
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE_S)
        wait_until(lambda: query(url, _SESSIONS, (name,)) == [(0,)], "all sessions to end")
        assert most() <= SESSIONS_MAX * processes
    ended = query(url, "SELECT status, count(*) FROM {schema}.runs GROUP BY status")
    assert ended == [("completed", RUNS)]
