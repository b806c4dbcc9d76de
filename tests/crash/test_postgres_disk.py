"""PostgreSQL without room on its disk: no run is lost, no completed step is repeated, and work continues by itself.

The tables lie in a tablespace on a file system of a few megabytes. Mounting one needs root on Linux.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.patience import LOOK_S, wait_until
from tests.postgres_server import UNPRIVILEGED, Server, fresh_schema, query, start_server

from .flows import WITNESS
from .harness import CrashHarness
from .test_postgres_faults import at_work, judge, logs_at_the_end, start, takeovers

pytestmark = pytest.mark.slow
ROOM = "24m"
_BALLAST = "INSERT INTO {schema}.ballast SELECT repeat(md5(n::text), 200) FROM generate_series(1, %s) n"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system with a quota that the server's user may write to."""
    folder = Path(tempfile.mkdtemp(prefix="buoy-room-"))
    words = ["mount", "-t", "tmpfs", "-o", f"size={ROOM},uid={UNPRIVILEGED},gid={UNPRIVILEGED},mode=700", "tmpfs"]
    if os.geteuid() or subprocess.run([*words, str(folder)], capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("mounting a file system of limited size needs root and Linux")
    yield folder
    # Lazily: the server lets its files go when it has stopped.
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


@pytest.fixture
def server(small_disk: Path) -> Iterator[Server]:
    made = start_server(18)
    try:
        query(made.url("x"), f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        query(made.url("x"), "ALTER ROLE postgres SET default_tablespace = small")
        yield made
    finally:
        made.stop()


@pytest.fixture
def harness(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrashHarness]:
    made = CrashHarness(tmp_path, told=True)
    made.url = server.url(fresh_schema())
    monkeypatch.setenv(WITNESS, str(made.witness))
    try:
        yield made
    finally:
        made.close()


def test_a_full_disk_costs_no_run_and_work_continues_when_there_is_room(harness: CrashHarness) -> None:
    runs = start(harness.url, 100, span_s=3.0)
    query(harness.url, "CREATE TABLE {schema}.ballast (filler text STORAGE PLAIN)")
    # Room for workers to begin, and no more.
    query(harness.url, "CREATE TABLE {schema}.spare AS SELECT repeat('x', 900) FROM generate_series(1, 1000)")
    _fill(harness.url, 100)
    query(harness.url, "DROP TABLE {schema}.spare")
    workers = [harness.worker() for _ in range(2)]
    at_work(harness, 4)
    for rows in (20, 1):
        _fill(harness.url, rows)
    # Commits get through while the last page of each table has room.
    wait_until(lambda: _stands_still(harness), "the workers to stand still")
    assert query(harness.url, "SELECT count(*) > 0 FROM {schema}.runs WHERE NOT ended") == [(True,)]
    assert [worker.poll() for worker in workers] == [None, None]
    query(harness.url, "DROP TABLE {schema}.ballast")
    logs = logs_at_the_end(harness.url, runs)
    judge(harness, logs)
    assert takeovers(logs) == [], "a full disk is no death"


def _fill(url: str, rows: int) -> None:
    """Until no more fits."""
    try:
        while True:
            query(url, _BALLAST, (rows,))
    except psycopg.errors.DiskFull:
        return


def _stands_still(harness: CrashHarness) -> bool:
    """Whether no commit gets through for a while."""
    count = "SELECT count(*), sum(last_seq) FROM {schema}.log"
    _fill(harness.url, 1)
    before = query(harness.url, count)
    time.sleep(200 * LOOK_S)
    return query(harness.url, count) == before
