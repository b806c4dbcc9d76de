"""How much the PostgreSQL store reads: which index serves each hot statement, and what a sweep costs.

The tables hold 50,000 runs that ended and 10,000 that wait. With `--many-rows` it is a million and 100,000:
`pytest tests/stores/test_postgres_plans.py --many-rows`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
import pytest

import buoy
from buoy.core.ids import RunId, RunnerId
from buoy.core.log.lifecycle import ACTIVE
from buoy.ports.records import Held, Released, RunQuery, Wants, Write
from buoy.recovery.sweep.sweep import sweep
from buoy.stores.postgres import logs, runs, tasks
from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.commit import commit_work
from buoy.stores.postgres.connection import Connection, Values
from buoy.stores.postgres.store import PostgresStore
from buoy.stores.unreadable import Met
from buoy.testing.contracts.harness import StoreHarness, claimed, message, register, started
from tests.postgres_server import fresh_url, query, timed_url
from tests.stores.test_postgres import play, session_of

RUNNER = RunnerId("r1")
TABLES = ("runs", "log", "tasks", "inbox")


class Filled(NamedTuple):
    """A store with many rows, and drafts of commits on 60 runs of `RUNNER` in it."""

    url: str
    drafts: list[Write]


def _filled(url: str, ended: int, waiting: int) -> None:
    """Many runs that ended and many that wait, as rows."""
    query(
        url,
        """INSERT INTO {schema}.runs (run_id, workflow, status, ended, head_seq, created_at, updated_at, generation,
            orchestrator_task_id, doc)
            SELECT 'x' || n, 'order', CASE WHEN n <= %s THEN 'completed' ELSE 'waiting' END, n <= %s, 1, n, n, 1,
                'x' || n || ':orchestrate:1', '{}' FROM generate_series(1, %s) n""",
        (ended, ended, ended + waiting),
    )
    query(
        url,
        """INSERT INTO {schema}.log (run, first_seq, last_seq, tx, nonce, body)
            SELECT number, 1, 1, 1, 'n', '[]' FROM {schema}.runs""",
    )
    query(
        url,
        """INSERT INTO {schema}.tasks (run, task_id, run_id, workflow, queue, due_at, seen, inbox_head, cause, evidence)
            SELECT number, 't', run_id, workflow, 'default', 4e9, 0, 0, 'woken', '{}' FROM {schema}.runs
            WHERE NOT ended""",
    )
    query(url, "ANALYZE {schema}.runs, {schema}.log, {schema}.tasks")


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest) -> Filled:
    many = request.config.getoption("--many-rows", default=False)
    url = timed_url()
    _filled(url, 1_000_000 if many else 50_000, 100_000 if many else 10_000)
    drafts: list[Write] = []

    async def prepare(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, RUNNER)
        for number in range(60):
            author = await harness.author(f"run-{number}").create(store, Held(runner))
            await author.append(store, claimed(RUNNER))
            change = (Held(runner), None, Released(due_at=None, now=0.0))[number % 3]
            drafts.append(author.draft(started(1), task=change))
        await store.send(message("run-1", "d"))

    play(prepare, url)
    return Filled(url, drafts)


@pytest.fixture
def session(filled: Filled) -> Iterator[Connection]:
    made = session_of(filled.url)
    yield made
    made.close()


_SCANS = """SELECT relname, seq_scan, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
    WHERE schemaname = %s AND relname = ANY (%s) ORDER BY relname"""
_USES = """SELECT indexrelname, idx_scan FROM pg_stat_user_indexes
    WHERE schemaname = %s AND relname = ANY (%s) AND idx_scan > 0"""


def hot(drafts: list[Write]) -> dict[str, tuple[Callable[[Connection], object], set[str]]]:
    """Each hot call, and the indexes that serve it, of those tables that grow."""
    by_id = {"runs_run_id_key"}
    return {
        "commit one": (commit_work(drafts[1:2]), by_id),
        "commit many": (commit_work(drafts[2:]), {*by_id, "runs_pkey", "tasks_pkey"}),
        "landed": (lambda c: runs.landed(c, drafts), {*by_id, "log_pkey"}),
        "claim": (tasks.claim_work(RUNNER, Wants(), 100, Met()), {"tasks_due"}),
        "release": (tasks.release_work(RunId("run-1"), RUNNER, Released(due_at=None, now=0.0), None), by_id),
        "send": (runs.send_work(message("run-3", "e")), {*by_id, "tasks_pkey", "inbox_pkey", "inbox_dedupe"}),
        "inbox": (lambda c: logs.inbox_of(c, RunId("run-3")), {*by_id, "inbox_pkey"}),
        "run": (lambda c: runs.run_record(c, RunId("run-3")), {*by_id, "tasks_pkey"}),
        "events": (lambda c: logs.log_of(c, RunId("run-3")), {*by_id, "log_pkey"}),
        "many logs": (
            lambda c: logs.logs_of(c, [logs.Part(RunId(f"run-{number}")) for number in range(60)]),
            {*by_id, "log_pkey"},
        ),
        "unread": (lambda c: tasks.unread_runs(c, RUNNER), {"tasks_unread"}),
        "mark read": (tasks.mark_read_work(RunId("run-3"), RUNNER, 1), by_id),
        "moved": (lambda c: runs.moved(c, str(10**9), 100), {"log_tx"}),
        "page": (lambda c: runs.page_of_runs(c, RunQuery(), None, 50), {"runs_pkey", "tasks_pkey"}),
        "page of ended": (
            lambda c: runs.page_of_runs(c, RunQuery(statuses=("completed",)), None, 50),
            {"runs_ended", "tasks_pkey"},
        ),
        # As a sweep asks, which goes through all that waits page by page.
        "page of active": (
            lambda c: runs.page_of_runs(c, RunQuery(statuses=tuple(ACTIVE), env=None), str(10**9), 50),
            {"runs_active", "tasks_pkey"},
        ),
        "page of held": (
            lambda c: runs.page_of_runs(c, RunQuery(holder=RUNNER), None, 50),
            {"runs_pkey", "tasks_held"},
        ),
        "orphans": (lambda c: tasks.orphans(c, 100), {"runs_active", "tasks_held", "tasks_pkey"}),
        "run ids": (lambda c: runs.run_ids(c, "run-", 10), by_id),
        "may retire": (lambda c: tasks.may_retire(c, 0), set()),
        "count of held": (lambda c: runs.counts(c, RunQuery(holder=RUNNER)), {"runs_pkey", "tasks_held"}),
        "declare dead": (tasks.declare_dead_work(RUNNER, "dead", "taken_over", {}), {"tasks_held"}),
    }


def test_every_hot_statement_is_served_by_its_index(filled: Filled, session: Connection) -> None:
    """By the server's own counters, which also count what functions do."""
    name = address_of(filled.url).schema
    for what, (work, indexes) in hot(filled.drafts).items():
        scans, uses = _scans(session, name), _uses(session, name)
        work(session)
        for table, (scanned, rows) in _scans(session, name).items():
            assert scanned == scans[table][0], f"{what} scans {table}"
            # Orphans are looked for among all runs that are active.
            assert rows - scans[table][1] < 2_000 or what == "orphans", f"{what} reads many rows of {table}"
        used = set(_uses(session, name) - uses)
        assert indexes <= used, f"{what} is served by {used}"


def _flushed(session: Connection) -> None:
    session.raw.execute("SELECT pg_stat_force_next_flush()")
    session.raw.execute("SELECT pg_stat_clear_snapshot()")


def _scans(session: Connection, name: str) -> dict[str, tuple[int, int]]:
    _flushed(session)
    found = session.raw.execute(_SCANS, (name, list(TABLES))).fetchall()
    return {table: (scans, rows) for table, scans, rows in found}


def _uses(session: Connection, name: str) -> Counter[str]:
    return Counter(dict(session.raw.execute(_USES, (name, list(TABLES))).fetchall()))


# Reads that are functions: their plan shows no table, so that only the counters above tell what they read.
BY_FUNCTION = {"runs", "logs", "inboxes"}


class Explaining(Connection):
    """A session that asks for the plan of each statement before it carries it out."""

    plans: dict[str, Any]

    def run(self, name: str, values: Values = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        text = b"EXPLAIN (FORMAT json) " + self.STATEMENTS[name]
        self.plans[name] = list(self.raw.execute(text, values or None).fetchone() or ())
        return super().run(name, values)


def test_the_plan_of_every_hot_read_names_an_index_and_no_scan(filled: Filled, session: Connection) -> None:
    explaining = Explaining(session.raw, session.STATEMENTS)
    explaining.plans = {}
    for what, (work, _) in hot(filled.drafts).items():
        if not what.startswith(("commit", "claim", "release", "send", "declare", "mark")):
            work(explaining)
    assert len(explaining.plans) >= 12
    for name, plan in explaining.plans.items():
        if name in BY_FUNCTION:
            continue
        nodes = list(_nodes(plan))
        # The table of runners is kept small.
        scanned = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"} - {"runners"}
        assert not scanned, f"{name} scans {scanned}"
        assert any("Index Name" in node for node in nodes), f"{name} uses no index"


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a plan."""
    if isinstance(plan, dict):
        if "Node Type" in plan:
            yield plan
        for each in plan.values():
            yield from _nodes(each)
    elif isinstance(plan, list):
        for each in plan:
            yield from _nodes(each)


# What does not grow with the runs of a store: its other tables, and functions that read no table.
SMALL = {b"migrations", b"definitions", b"runners", b"schedules", b"tokens", b"tombstones"}
SMALL |= {b"as_json", b"at_once", b"durable", b"since", b"store_now"}
# The doctor compares what is stored twice, and for that it reads all of it.
OF_DOCTOR = "find_"
_PARAMETER = re.compile(rb"%(\(\w+\))?[sb]")


def _growing(session: Connection, schema: str) -> set[str]:
    """The statements that name a table that grows, or a function that may read one."""
    named = re.compile(re.escape(f'"{schema}".'.encode()) + rb"(\w+)")
    return {name for name, text in session.STATEMENTS.items() if set(named.findall(text)) - SMALL}


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each statement is sent inside of this block, on all sessions."""
    sent: Counter[str] = Counter()
    run = Connection.run

    def counted(self: Connection, name: str, values: Values = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        sent[name] += 1
        return run(self, name, values)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "run", counted)
        yield sent


def _looked_at(filled: Filled, session: Connection, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    with counting(monkeypatch) as sent:
        for work, _ in hot(filled.drafts).values():
            work(session)
    return set(sent)


def test_no_statement_is_forgotten_here(filled: Filled, session: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not among the hot calls has a plan by an index, whatever its values are."""
    rest = _growing(session, address_of(filled.url).schema) - _looked_at(filled, session, monkeypatch)
    scanning = set()
    for name in rest:
        places: dict[bytes, int] = {}
        text = _PARAMETER.sub(
            lambda found: b"$%d" % places.setdefault(found.group(1) or b"%d" % len(places), len(places) + 1),
            session.STATEMENTS[name],
        )
        plan = session.raw.execute(b"EXPLAIN (GENERIC_PLAN, FORMAT json) " + text).fetchone()
        nodes = _nodes(list(plan or ()))
        if any(node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES for node in nodes):
            scanning.add(name)
    assert [name for name in scanning if not name.startswith(OF_DOCTOR)] == []


@buoy.step
async def doubled(number: int) -> int:
    return 2 * number


@buoy.step(queue="elsewhere")
async def halved(number: int) -> int:
    return number // 2


@buoy.workflow
async def errand(number: int) -> int:
    return await doubled(number)


@buoy.workflow
async def trip() -> int:
    """All that a run can wait for."""
    found = await doubled(2) + await halved(8) + await errand(3)
    await buoy.sleep(0.01)
    await buoy.wait_signal("go")
    return found + int(await buoy.ask("How many?", kind="text"))


def test_what_a_worker_sends_is_among_the_hot_statements(
    filled: Filled, session: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that the engine begins to use must be looked at above."""
    url = fresh_url()

    async def drive() -> None:
        async with buoy.open(url, workflows=[trip, errand], queues=("default", "elsewhere")) as app:
            run = await app.start(trip)
            await run.signal("go")
            question = await run.question()
            assert question is not None
            await sweep(app)
            await run.answer("1")
            assert await run.result() == 4 + 4 + 6 + 1
        async with buoy.connect(url) as client:
            await sweep(client)

    looked_at = _looked_at(filled, session, monkeypatch)
    with counting(monkeypatch) as sent:
        asyncio.run(drive())
    assert sent["commit_group"] and sent["claim_tasks"] and sent["page_active"], "the worker has done nothing"
    growing = _growing(session, address_of(filled.url).schema)
    assert growing & sent.keys() <= looked_at


def test_a_sweep_costs_the_same_however_many_runs_have_ended(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = request.config.getoption("--many-rows", default=False)
    few, more = (_cost_of_a_sweep(ended, monkeypatch) for ended in (1_000, 1_000_000 if many else 30_000))
    assert more.statements == few.statements
    assert more.rows <= 2 * few.rows + 100


class Cost(NamedTuple):
    """What a whole sweep asked of the server."""

    statements: Counter[str]
    rows: int


def _cost_of_a_sweep(ended: int, monkeypatch: pytest.MonkeyPatch) -> Cost:
    url = timed_url()
    _filled(url, ended, 0)
    statements: Counter[str] = Counter()

    async def one_sweep() -> None:
        async with buoy.connect(url) as client:
            await sweep(client)
            with counting(monkeypatch) as sent:
                await sweep(client)
            statements.update(sent)

    session = session_of(url)
    try:
        # The first sweep of a store is not counted.
        before = _scans(session, address_of(url).schema)
        asyncio.run(one_sweep())
        after = _scans(session, address_of(url).schema)
    finally:
        session.close()
    rows = sum(after[table][1] - before[table][1] for table in TABLES)
    del statements["notify"]
    return Cost(statements, rows)


def test_a_page_of_waiting_runs_is_read_in_order_where_nearly_all_runs_wait() -> None:
    """The planner took the condition on the environment for a rare one, and read and sorted the table for each page."""
    url = timed_url()
    _filled(url, 0, 20_000)
    session = session_of(url)
    explaining = Explaining(session.raw, session.STATEMENTS)
    explaining.plans = {}
    try:
        runs.page_of_runs(explaining, RunQuery(statuses=tuple(ACTIVE), env=None), "15000", 200)
    finally:
        session.close()
    nodes = list(_nodes(explaining.plans["page_active"]))
    assert not {"Seq Scan", "Sort"} & {node["Node Type"] for node in nodes}
    # An estimate of one row made the planner choose that way where rows are wide.
    assert all(node["Plan Rows"] > 1_000 for node in nodes if node.get("Relation Name") == "runs")
