"""The commonest commit is sent on the caller's thread: when it is answered there, and what becomes of it if not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec
import psycopg
import pytest

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.errors import Unavailable
from buoy.ports.records import Beat, Committed, FencedOut, Held, Write
from buoy.stores.postgres.appends import BYTES_MAX, PREPARE_AFTER
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.contracts.harness import StoreHarness, claimed, register, started
from tests.patience import PATIENCE_S, until
from tests.postgres_server import query
from tests.stores.test_postgres import play
from tests.stores.test_postgres_collisions import STRIKES, url_of

FAILS_LATE = """
    CREATE FUNCTION {schema}.fail_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not at the end'; END $$;
    CREATE CONSTRAINT TRIGGER fail_late AFTER INSERT ON {schema}.log DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION {schema}.fail_late()"""

Body = Callable[[PostgresStore, Callable[[], Write]], Awaitable[None]]


def appending(body: Body) -> None:
    """A test with a run whose next writes are appends, and a store with an open session."""

    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, "r1")
        author = await harness.author("run-0").create(store, Held(runner))
        await author.append(store, claimed("r1"))
        number = 0

        def draft() -> Write:
            nonlocal number
            number += 1
            return author.draft(started(number))

        async with asyncio.timeout(PATIENCE_S):
            await body(store, draft)

    play(test)


@contextmanager
def locked(store: PostgresStore) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Another session holds the row of the run."""
    address = store._opened.address
    with psycopg.connect(address.conninfo) as other:
        other.execute(f"SELECT 1 FROM {address.quoted}.runs FOR UPDATE".encode())
        yield other


def free_session(store: PostgresStore) -> Connection:
    (session,) = store._writer._free
    return session


def suspended(store: PostgresStore, write: Write) -> asyncio.Task[object]:
    """The commit as a task that has begun."""
    return asyncio.get_running_loop().create_task(store.commit([write]))


async def waiting_for_server(store: PostgresStore) -> None:
    await until(lambda: not store._writer._free, "the commit to be under way")


def test_an_append_to_a_quick_server_completes_without_suspending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server counts as quick here however long it takes: the machine of the tests may be busy."""
    monkeypatch.setattr("buoy.stores.postgres.appends.QUICK_S", PATIENCE_S)

    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        commit = store.commit([draft()])
        with pytest.raises(StopIteration) as end:
            commit.send(None)
        assert end.value.value == [Committed(3)]
        assert len(await store.events(RunId("run-0"))) == 3

    appending(body)


def test_an_append_that_takes_long_leaves_the_loop_free_and_commits() -> None:
    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        session = free_session(store)
        with locked(store) as other:
            commit = suspended(store, draft())
            await waiting_for_server(store)
            # The lane opens its second session for other work.
            assert await store.beat(RunnerId("r1"), Beat(number=2))
            assert not commit.done()
            other.rollback()
        assert await commit == [Committed(3)]
        assert session in store._writer._free, "the session is of further use"
        assert len(store._writer._open) == 2

    appending(body)


def test_a_fenced_append_changes_nothing_and_says_where_the_run_stands() -> None:
    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        write = draft()
        assert await store.commit([write]) == [Committed(3)]
        assert await store.commit([write]) == [FencedOut(3)]
        assert await store.landed([write]) == [Committed(3)]

    appending(body)


def test_a_caller_that_gives_up_leaves_no_session_with_a_foreign_answer() -> None:
    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        session, write = free_session(store), draft()
        with locked(store) as other:
            commit = suspended(store, write)
            await waiting_for_server(store)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            assert session.raw.closed and session not in store._writer._open
            other.rollback()
        # The cancelled commit stands or not; the next answer is that of its own statement in both cases.
        outcome = (await store.commit([write]))[0]
        assert outcome in (Committed(3), FencedOut(3))
        assert await store.landed([write]) == [Committed(3)]

    appending(body)


def test_a_session_that_ends_under_an_append_is_unclear_and_replaced() -> None:
    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        write, session = draft(), free_session(store)
        with locked(store) as other:
            commit = suspended(store, write)
            await waiting_for_server(store)
            query(url_of(store), "SELECT pg_terminate_backend(%s)", (session.raw.info.backend_pid,))
            with pytest.raises(Unavailable):
                await commit
            other.rollback()
        assert session.raw.closed and session not in store._writer._open
        assert await store.commit([write]) == [Committed(3)]

    appending(body)


def test_an_append_that_fails_at_the_end_of_its_transaction_is_not_acknowledged() -> None:
    """The server says that the statement is complete, and then that its transaction is not."""

    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        session = free_session(store)
        query(url_of(store), FAILS_LATE)
        with pytest.raises(Unavailable, match="not at the end"):
            await store.commit([draft()])
        assert len(await store.events(RunId("run-0"))) == 2
        assert free_session(store) is session, "its answer was complete"

    appending(body)


def test_an_append_that_collides_is_tried_again() -> None:
    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        query(url_of(store), STRIKES.format(hit="run-0", times=2, code="40001"))
        assert await store.commit([draft()]) == [Committed(3)]

    appending(body)


def test_an_append_that_does_not_fit_into_the_socket_is_sent_by_the_loop() -> None:
    async def body(store: PostgresStore, draft: Callable[[], Write]) -> None:
        write, session = draft(), free_session(store)
        filler = "x" * (BYTES_MAX - 2_000)
        (event,) = write.events
        assert isinstance(event.body, e.StepStarted)
        large = msgspec.structs.replace(event, body=msgspec.structs.replace(event.body, leaf=LeafId(filler)))
        with socket.socket(fileno=os.dup(session.raw.fileno())) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        backend = session.raw.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        try:
            commit = suspended(store, msgspec.structs.replace(write, events=(large,)))
            await waiting_for_server(store)
            assert session.raw.pgconn.flush() == 1, "a part of the statement is unsent"
        finally:
            os.kill(backend, signal.SIGCONT)
        assert await commit == [Committed(3)]

    appending(body)


def prepared_by(session: Connection) -> list[tuple[object, ...]]:
    """The statements that the server keeps for this session, each with how often it was planned for all values."""
    with session.raw.cursor() as cursor:
        return cursor.execute("SELECT generic_plans > 0 FROM pg_prepared_statements").fetchall()


def test_a_session_that_appends_often_prepares_the_append_once() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, "r1")
        author = await harness.author("run-0").create(store, Held(runner))
        # The server plans a prepared statement again for each of the first five values.
        for number in range(1, PREPARE_AFTER + 10):
            assert prepared_by(free_session(store)) == [] or number > PREPARE_AFTER
            await author.append(store, started(number))
        assert prepared_by(free_session(store)) == [(True,)]
        assert len(await store.events(RunId("run-0"))) == PREPARE_AFTER + 10

    play(test)


def test_an_append_whose_prepared_statement_is_lost_commits_and_sends_its_text_from_then_on() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        runner = await register(store, "r1")
        author = await harness.author("run-0").create(store, Held(runner))
        for number in range(1, PREPARE_AFTER + 3):
            await author.append(store, started(number))
        session = free_session(store)
        session.raw.execute("DEALLOCATE ALL")
        for number in range(PREPARE_AFTER + 3, 3 * PREPARE_AFTER):
            await author.append(store, started(number))
        assert free_session(store) is session, "the session is of further use"
        assert prepared_by(session) == []
        assert len(await store.events(RunId("run-0"))) == 3 * PREPARE_AFTER

    play(test)
