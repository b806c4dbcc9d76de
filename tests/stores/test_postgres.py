"""What is particular to the PostgreSQL store: sessions, settings, schemas, secrets, and how much it reads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import psycopg
import pytest

import buoy
from buoy.core.extras import INSTALL_POSTGRES
from buoy.core.ids import RunId
from buoy.core.log.events import Event
from buoy.errors import BadInput, StoreUnusable, Unavailable
from buoy.host.clock import SystemClock
from buoy.ports.maintenance import StoreCheck
from buoy.ports.records import Beat, Committed, FencedOut, Held, Progress, Released, RunQuery, Write
from buoy.stores.postgres import schema, statements
from buoy.stores.postgres.address import Address, address_of
from buoy.stores.postgres.commit import commit_work
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.opening import connect, open_database
from buoy.stores.postgres.store import SESSIONS_MAX, PostgresStore
from buoy.testing.contracts import TimedStoreContract
from buoy.testing.contracts.harness import StoreHarness, claim, claimed, message, register, started
from tests.patience import wait_until
from tests.postgres_server import fresh_schema, fresh_url, open_timed, query, server, start_server, timed_url

RUN = RunId("run.1-a")


def play(test: Callable[[StoreHarness, PostgresStore], Awaitable[None]], url: str | None = None) -> None:
    """A test on a harness whose clock is the store's."""
    place = url or timed_url()

    class One(TimedStoreContract):
        async def open_timed(self, _: Path, clock: object, own_clock: object) -> PostgresStore:
            return await open_timed(place, clock, own_clock)  # type: ignore[arg-type]

    async def main() -> None:
        harness = StoreHarness(One(), Path())
        try:
            await test(harness, await harness.open())  # type: ignore[arg-type]
        finally:
            await harness.close()

    asyncio.run(main())


def session_of(url: str) -> Connection:
    address = address_of(url)
    return connect(address, open_database(address).sql)


# ---- commits


class Counting(Connection):
    """A session that counts its statements."""

    statements = 0

    def run(self, name: str, values: object = ()) -> psycopg.Cursor[tuple[object, ...]]:
        Counting.statements += 1
        return super().run(name, values)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 500])
def test_a_commit_of_many_runs_is_one_statement_in_one_round_trip(tmp_path: Path, count: int) -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        url = store_url(store)
        runner = await register(store, "r1")
        authors = [harness.author(f"run-{number}") for number in range(count)]
        firsts = [author.first(Held(runner)) for author in authors]
        session = Counting(psycopg.connect(url.conninfo, autocommit=True, prepare_threshold=None), store._opened.sql)
        trace = (tmp_path / "trace").open("w")
        try:
            session.raw.execute("SELECT set_config('buoy_test.now', '1000000', false)")
            session.raw.pgconn.trace(trace.fileno())
            assert commit_work(firsts)(session) == [Committed(1)] * count
            for author, write in zip(authors, firsts, strict=True):
                author.accept(write)
            drafts = [author.draft(claimed("r1"), started(1)) for author in authors]
            assert commit_work(drafts)(session) == [Committed(3)] * count
            assert commit_work(drafts)(session) == [FencedOut(3)] * count
            session.raw.pgconn.untrace()
        finally:
            trace.close()
            session.close()
        # Of a single run the quick statement comes first, and tells only that the run is elsewhere.
        asked = 3 if count > 1 else 4
        assert Counting.statements == asked
        sent = [line for line in (tmp_path / "trace").read_text().splitlines() if "\tF\t" in line]
        assert sum("Sync" in line for line in sent) == asked
        Counting.statements = 0

    play(test)


def store_url(store: PostgresStore) -> Address:
    return store._opened.address


def test_groups_that_meet_in_any_order_never_deadlock() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, "r1")
        authors = [harness.author(f"run-{number}") for number in range(20)]
        await store.commit([author.first(Held(runner)) for author in authors])
        for author in authors:
            author.log = await store.events(author.run_id)
        others = [await harness.open() for _ in range(3)]
        for round_ in range(10):
            drafts = [author.draft(claimed(f"r{round_}")) for author in authors]
            groups = [drafts, drafts[::-1], drafts[10:] + drafts[:10]]
            found = await asyncio.gather(
                *(each.commit(group) for each, group in zip(others, groups, strict=True)),
                store.declare_dead(runner, "again", cause="taken_over", evidence={}),
            )
            outcomes = [outcome for group in found[:3] for outcome in group]  # type: ignore[union-attr]
            assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 20
            for author in authors:
                author.log = await store.events(author.run_id)

    play(test)


def test_a_commit_is_durable_whatever_the_session_says() -> None:
    url = fresh_url()
    session = session_of(url)
    try:
        session.raw.execute("SET synchronous_commit = off")
        with session.transaction():
            assert session.raw.execute("SHOW synchronous_commit").fetchone() == ("on",)
        session.raw.execute("BEGIN")
        session.rows("send_message", ("none", "d", "signal", None, b"{}", 10))
        assert session.raw.execute("SHOW synchronous_commit").fetchone() == ("on",)
        session.raw.execute("ROLLBACK")
    finally:
        session.close()


# ---- sessions and hints


def sessions(schema_name: str) -> int:
    statement = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    return int(query(server().url("public_probe"), statement, (schema_name,))[0][0])


@buoy.step
async def double(number: int) -> int:
    return 2 * number


@buoy.workflow
async def doubled(number: int) -> int:
    for _ in range(3):
        number = await double(number)
    return number


def test_a_worker_has_at_most_five_sessions() -> None:
    name = fresh_schema()
    url = server().url(name, application_name=name)

    async def main() -> None:
        async with buoy.open(url, workflows=[doubled]) as app:
            most = 0
            for _ in range(3):
                runs = await asyncio.gather(*(app.start(doubled, number) for number in range(100)))
                for run in runs:
                    await run.result()
                    most = max(most, await asyncio.to_thread(sessions, name))
            assert 3 <= most <= SESSIONS_MAX == 5

    asyncio.run(main())
    wait_until(lambda: sessions(name) == 0, "all sessions to end")


def test_a_change_by_another_process_is_heard() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        other = await harness.open()
        await other.wait_for_change(0.1)
        wait_until(lambda: other._listener._session is not None, "it to listen")
        while await other.wait_for_change(0.2):
            pass
        waiting = asyncio.create_task(other.wait_for_change(60.0))
        await asyncio.sleep(0)
        await harness.author(RUN).create(store)
        assert await waiting

    play(test)


def test_a_change_by_a_command_that_ends_at_once_is_heard() -> None:
    """It wrote twice within the pause between two hints. The second one is still due when it ends."""
    url = fresh_url()

    async def start(run_id: str) -> None:
        async with buoy.connect(url) as client:
            await client.start_as(run_id, doubled, 1)

    async def main() -> None:
        listening = await PostgresStore.open(url, clock=SystemClock())
        try:
            await listening.wait_for_change(0.1)
            wait_until(lambda: listening._listener._session is not None, "it to listen")
            while await listening.wait_for_change(0.2):
                pass
            command = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(start("b"))))
            found = None
            while found is None:
                assert await listening.wait_for_change(10.0), "the run is there, and no hint has come since"
                found = await listening.run(RunId("b"))
            await command
        finally:
            await listening.close()

    asyncio.run(start("a"))
    asyncio.run(main())


def test_work_goes_on_after_the_server_was_restarted() -> None:
    own = start_server(18)
    url = own.url(fresh_schema())

    async def main() -> None:
        store = await PostgresStore.open(url, clock=SystemClock())
        runner = await register(store, "r1")
        own.control("restart", "-m", "immediate")
        assert [each.info.id for each in await store.runners()] == [runner], "a read is tried again"
        try:
            assert await store.beat(runner, Beat(number=1))
        except Unavailable:
            assert await store.beat(runner, Beat(number=2))
        own.control("stop", "-m", "immediate")
        with pytest.raises(Unavailable):
            await store.runners()
        await store.close()

    asyncio.run(main())


# ---- addresses and secrets


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = server().folder
    url = f"postgresql://postgres:s3cret@/postgres?host={folder}&schema={fresh_schema()}"

    async def main() -> None:
        store = await PostgresStore.open(url, clock=SystemClock())
        assert "s3cret" not in store.name and "s3cret" not in repr(store._opened)
        await store.close()

    asyncio.run(main())
    for wrong in (
        "postgresql://u:s3cret@127.0.0.1:1/db?connect_timeout=1",
        "postgresql://u:s3cret@127.0.0.1:1/db?nonsense=1",
        "postgresql://u:s3cret@[/db",
    ):
        with pytest.raises((Unavailable, BadInput)) as refused:
            asyncio.run(PostgresStore.open(wrong, clock=SystemClock()))
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql:///x?shema=y", "unknown option 'shema'"),
        ("postgresql:///x?schema=pg_mine", "not with 'pg_'"),
        ('postgresql:///x?schema=a"b', "is not allowed"),
        ("postgresql:///x?schema=a;drop", "is not allowed"),
        ("postgresql:///x?schema=", "is not allowed"),
    ],
)
def test_an_address_that_means_nothing_is_refused_before_a_connection(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        address_of(url)


def test_a_schema_of_capitals_and_dashes_is_a_schema_like_others() -> None:
    name = f"Up-{fresh_schema()}"

    async def main() -> None:
        async with buoy.open(server().url(name), workflows=[doubled]) as app:
            assert await (await app.start(doubled, 1)).result() == 8

    asyncio.run(main())
    assert query(server().url(name), "SELECT count(*) FROM {schema}.runs") == [(1,)]


def test_a_connection_that_fails_says_so_and_what_to_check() -> None:
    """Nothing was written, so that there is nothing to read back."""
    missing = server().url("x").replace("/postgres?", "/no_such_database?")
    for url in (missing, "postgresql://127.0.0.1:9/x"):
        with pytest.raises(Unavailable, match=r"^no connection to postgresql://.*; check the server, the address"):
            asyncio.run(PostgresStore.open(url, clock=SystemClock()))


def test_the_doctor_names_a_database_that_only_reads() -> None:
    url = fresh_url()
    asyncio.run(checks(url))
    found = asyncio.run(checks(f"{url}&options=-c%20default_transaction_read_only%3Don"))
    assert not found["access"].ok and "read-only" in found["access"].text


async def checks(url: str) -> dict[str, StoreCheck]:
    store = await PostgresStore.open(url, clock=SystemClock())
    try:
        return {each.name: each for each in await store.integrity.checks()}
    finally:
        await store.close()


def test_libpq_s_own_ways_to_name_a_server_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, name = server().folder, fresh_schema()
    service = tmp_path / "services"
    service.write_text(f"[harbour]\nhost={folder}\nuser=postgres\ndbname=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(service))

    async def name_of(url: str) -> str:
        store = await PostgresStore.open(url, clock=SystemClock())
        await store.close()
        return store.name

    found = {asyncio.run(name_of(f"postgresql://?service=harbour&schema={name}"))}
    found.add(asyncio.run(name_of(f"postgres://postgres@/postgres?host={folder}&schema={name}")))
    monkeypatch.setenv("PGHOST", str(folder))
    monkeypatch.setenv("PGUSER", "postgres")
    found.add(asyncio.run(name_of(f"postgresql:///postgres?schema={name}")))
    assert found == {f"postgresql:///postgres?host={folder}&port=5432&schema={name}"}
    several = f"postgresql://postgres@/postgres?host=127.0.0.1,{folder}&port=1,5432&schema={name}"
    assert asyncio.run(name_of(several)).startswith("postgresql://127.0.0.1:1,")


def test_texts_of_every_language_are_stored_whatever_encoding_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")

    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        await harness.author(RUN).create(store)
        sent = msgspec.structs.replace(message(RUN, "d"), by="Пётр")
        await store.send(sent)
        assert [each.by for each in await store.inbox(RUN)] == ["Пётр"]

    play(test)


@pytest.mark.parametrize(
    "error", ["ModuleNotFoundError('no driver', name='psycopg')", "ImportError('no pq wrapper available')"]
)
def test_without_the_driver_the_error_names_the_command_that_installs_it(tmp_path: Path, error: str) -> None:
    (tmp_path / "psycopg.py").write_text(f"raise {error}")
    command = "import sys; sys.path.insert(0, sys.argv.pop(1)); from buoy.__main__ import start; start()"
    done = subprocess.run(
        [sys.executable, "-c", command, str(tmp_path), "ps"],
        capture_output=True,
        text=True,
        env={"PATH": "", "BUOY_STORE": "postgresql://u:s3cret@h/db"},
    )
    assert done.returncode != 0
    assert INSTALL_POSTGRES in done.stderr + done.stdout and "Traceback" not in done.stderr
    assert "s3cret" not in done.stderr + done.stdout


# ---- schemas and migrations


def test_a_server_that_may_lose_commits_is_refused() -> None:
    for setting in ("fsync", "full_page_writes"):
        own = start_server(18, f"{setting}=off")
        with pytest.raises(StoreUnusable, match=f"{setting}=off"):
            asyncio.run(PostgresStore.open(own.url("buoy"), clock=SystemClock()))
        own.stop()


def test_two_installations_share_a_database_and_nothing_else() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        await harness.author(RUN).create(store)

        async def look(_: StoreHarness, other: PostgresStore) -> None:
            assert (await other.find_runs(RunQuery())).runs == ()

        await asyncio.to_thread(play, look)
        assert len((await store.find_runs(RunQuery())).runs) == 1

    play(test)


def test_an_ordinary_role_needs_only_its_schema() -> None:
    name = fresh_schema()
    url = server().url(name)
    query(url, f"CREATE ROLE {name}_role LOGIN")
    mine = url.replace("user=postgres", f"user={name}_role")
    with pytest.raises(StoreUnusable, match="refuses this role"):
        asyncio.run(PostgresStore.open(mine, clock=SystemClock()))
    query(url, f"CREATE SCHEMA {name} AUTHORIZATION {name}_role")

    async def main() -> None:
        async with buoy.open(mine, workflows=[doubled]) as app:
            assert await (await app.start(doubled, 1)).result() == 8

    asyncio.run(main())


def test_a_schema_of_something_else_is_refused() -> None:
    url = fresh_url()
    query(url, "CREATE SCHEMA {schema}")
    query(url, "CREATE TABLE {schema}.runs (mine int)")
    with pytest.raises(StoreUnusable, match="something else"):
        asyncio.run(PostgresStore.open(url, clock=SystemClock()))


def test_processes_that_open_a_new_store_at_once_make_it_once() -> None:
    url = fresh_url()

    async def main() -> None:
        opened = await asyncio.gather(*(PostgresStore.open(url, clock=SystemClock()) for _ in range(6)))
        for store in opened:
            await store.close()

    asyncio.run(main())
    known = len(statements.load_migrations('"x"'))
    assert query(url, "SELECT count(*) FROM {schema}.migrations") == [(known,)]


@pytest.mark.parametrize("additive", [True, False])
def test_an_older_buoy_uses_a_newer_schema_only_if_it_was_added_to(
    monkeypatch: pytest.MonkeyPatch, additive: bool
) -> None:
    url = fresh_url()
    known = statements.load_migrations(address_of(url).quoted)
    change = b"ALTER TABLE " + address_of(url).quoted.encode() + b".runs ADD COLUMN colour text"
    newer = (*known, statements.SchemaMigration(len(known) + 1, "dummy", additive, change))
    session = connect(address_of(url), open_database(address_of(url)).sql)
    schema.prepare(session, address_of(url), newer, "newer")
    session.close()
    if not additive:
        with pytest.raises(StoreUnusable, match="a newer Buoy changed it"):
            asyncio.run(PostgresStore.open(url, clock=SystemClock()))
        return

    async def main() -> None:
        async with buoy.open(url, workflows=[doubled]) as app:
            assert await (await app.start(doubled, 1)).result() == 8

    asyncio.run(main())
    assert query(url, "SELECT colour FROM {schema}.runs") == [(None,)]


# ---- what people ask with an SQL shell, and the doctor


def test_the_view_shows_the_runner_of_a_run_and_its_progress() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store)
        await author.append(store, claimed("r1"), started(1), task=Held(runner))
        await harness.author("run-2").create(store)
        await store.beat(runner, Beat(number=1, progress={RUN: Progress(at=1.0, done=3, total=10, note="pages")}))
        url = server().url(store._opened.address.schema)
        statement = """SELECT workflow_run_id, status, state->>'runner_pid', host, runner_id, progress
            FROM {schema}.workflow_runs WHERE status = 'running'"""
        (row,) = query(url, statement)
        assert row[:5] == (RUN, "running", "1", "host", runner)
        assert row[5] == {"at": 1.0, "done": 3.0, "total": 10.0, "note": "pages"}
        found = query(url, "SELECT seq, type FROM {schema}.events WHERE run_id = %s ORDER BY seq", (RUN,))
        assert [kind for _, kind in found] == ["workflow_created", "claimed", "step_started"]

    play(test)


def test_the_doctor_finds_what_disagrees_and_mends_it() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        url = server().url(store._opened.address.schema)
        await harness.author(RUN).create(store, Released(due_at=None, now=0.0))
        checks = {each.name: each for each in await store.integrity.checks()}
        assert all(each.ok for each in checks.values()), checks
        assert {"schema", "durability", "replicas", "connections", "vacuum", "transactions", "indexes"} <= set(checks)
        assert [each async for each in store.integrity.index_troubles(deep=True) if each is not None] == []
        query(url, "UPDATE {schema}.tasks SET inbox_head = 7, task_id = 'lost'")
        query(url, "UPDATE {schema}.runs SET status = 'paused', doc = doc")
        query(url, "DROP INDEX {schema}.tasks_due")
        found = [each async for each in store.integrity.index_troubles(deep=True) if each is not None]
        names = ["missing index", "wrong inbox head", "wrong task id", "wrong status column"]
        assert [each.name for each in found] == names
        assert [await store.integrity.repair(each) for each in found] == [True] * 4
        assert [each async for each in store.integrity.index_troubles(deep=True) if each is not None] == []
        assert await store.integrity.refusal() is None

    play(test)


# ---- claims and read-backs


def test_claims_skip_what_others_lock() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, "r1")
        for number in range(3):
            await harness.author(f"run-{number}").create(store)
        url = server().url(store._opened.address.schema)
        with psycopg.connect(address_of(url).conninfo) as other:
            lock = f"SELECT 1 FROM {address_of(url).quoted}.tasks WHERE run_id = 'run-1' FOR UPDATE"
            other.execute(lock.encode())
            assert await claim(store, runner) == ["run-0", "run-2"]
            other.rollback()
        assert await claim(store, runner) == ["run-1"]

    play(test)


def test_an_unclear_group_is_read_back_by_one_statement() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        drafts = [harness.author(f"run-{number}").first() for number in range(50)]
        assert await store.landed(drafts) == [None] * 50
        await store.commit(drafts[:25])
        other = [msgspec.structs.replace(each, events=(_renonced(each),)) for each in drafts[:25]]
        assert await store.landed(drafts) == [Committed(1)] * 25 + [None] * 25
        assert await store.landed(other) == [FencedOut(1)] * 25

    play(test)


def _renonced(write: Write) -> Event:
    return msgspec.structs.replace(write.events[0], nonce="another")
