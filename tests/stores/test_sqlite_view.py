"""The view `workflow_runs`: who drives which run, for people with an SQL shell."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from buoy.core.ids import RunId, RunnerId
from buoy.ports.records import Beat, Held, Progress
from buoy.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, READABLE_FROM
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts.harness import StoreHarness, claimed, register, started

from .test_sqlite import play, sql
from .test_sqlite_file import opening

DOCS = Path(__file__).parents[2] / "docs"
RUN = RunId("run.1-a")
# As operators of other systems ask a table of runs whose column `state` is JSON.
STUCK = """
SELECT
    workflow_run_id,
    status,
    state->>'last_heartbeat' as heartbeat,
    state->>'runner_pid' as pid
FROM workflow_runs
WHERE status = 'running'
ORDER BY workflow_run_id DESC;
"""


async def held(harness: StoreHarness, store: SqliteStore) -> RunnerId:
    """A run in the hands of a runner that has told how far it is, and one that waits for a worker."""
    runner = await register(store, "r1")
    author = await harness.author(RUN).create(store)
    await author.append(store, claimed("r1"), started(1), task=Held(runner))
    await harness.author(RunId("run-2")).create(store)
    harness.clock.advance(30.5)
    await store.beat(
        runner, Beat(number=1, holding=1, progress={RUN: Progress(at=1.0, done=3, total=10, note="pages")})
    )
    return runner


def test_the_view_shows_who_drives_a_run_and_how_far_it_is(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        runner = await held(harness, store)
        (row,) = sql(
            tmp_path,
            "SELECT workflow_run_id, status, unixepoch(last_heartbeat), runner_pid, host, runner_id, progress "
            "FROM workflow_runs WHERE status = 'running'",
        )
        assert row[:2] == (RUN, "running")
        assert row[2] == int(harness.clock.now())
        assert row[3:6] == (1, "host", runner)
        assert json.loads(row[6]) == {"at": 1.0, "done": 3.0, "total": 10.0, "note": "pages"}
        waiting = sql(tmp_path, "SELECT * FROM workflow_runs WHERE workflow_run_id = 'run-2'")
        assert [each for each in waiting[0] if each is not None][:3] == ["run-2", "order", "pending"]

    play(tmp_path, test)


def test_the_query_for_stuck_workflows_runs_as_it_is_written(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        await held(harness, store)
        ((run, status, beat, pid),) = sql(tmp_path, STUCK)
        assert (run, status, pid) == (RUN, "running", 1)
        assert beat.endswith("Z") and "T" in beat

    play(tmp_path, test)
    assert " ".join(STUCK.split()) in " ".join((DOCS / "sweeper.md").read_text().split())


def test_a_runner_that_cannot_be_read_hides_no_run(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        await held(harness, store)
        sql(tmp_path, "UPDATE runners SET info = x'ff00', beat = 'no json'")
        (row,) = sql(
            tmp_path, "SELECT status, runner_pid, runner_id, progress FROM workflow_runs WHERE status = 'running'"
        )
        assert row == ("running", None, "r1", None)

    play(tmp_path, test)


def test_what_came_after_the_oldest_schema_that_is_read_are_views_and_no_more() -> None:
    """Where this user may not write, files of those schemas are read as they are."""
    later = [statement for statements in MIGRATIONS[READABLE_FROM:] for statement in statements]
    # The tokens of servers: a file without that table has none, and only a server that may write makes it.
    allowed = ("CREATE VIEW ", "CREATE TABLE IF NOT EXISTS tokens ")
    assert later and all(statement.startswith(allowed) for statement in later)


def test_an_older_file_gains_the_view_with_its_runs_when_it_is_opened_for_writing(tmp_path: Path) -> None:
    async def test(harness: StoreHarness, store: SqliteStore) -> None:
        await harness.author(RUN).create(store)

    play(tmp_path, test)
    path = tmp_path / "runs.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP VIEW workflow_runs")
    connection.execute("PRAGMA user_version = 4")
    connection.close()
    opening(path)
    assert sql(tmp_path, "SELECT workflow_run_id, status FROM workflow_runs") == [(RUN, "pending")]
    assert sql(tmp_path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert sql(tmp_path, "PRAGMA application_id") == [(APPLICATION_ID,)]
