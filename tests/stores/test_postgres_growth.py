"""The PostgreSQL store after many commits: a commit touches as few pages as at first, and updates stay heap-only.

The server counts the pages of each statement, so that the speed of the machine has no say.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.core.log import events as e
from buoy.ports.records import Ended, Write
from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.commit import commit_work
from buoy.stores.postgres.connection import Connection, Values
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.contracts.harness import Author, StoreHarness, claimed, completed, register, started
from tests.postgres_server import query, timed_url
from tests.stores.test_postgres import play, session_of

RUNS = 20
STEPS = 5
LIVES = 40
_UPDATES = """SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
    WHERE schemaname = %s AND relname = 'runs'"""


class Pages(Connection):
    """A session that counts the pages which each statement touches."""

    touched = 0

    def rows(self, name: str, values: Values = ()) -> list[tuple[Any, ...]]:
        text = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) " + self.STATEMENTS[name]
        (found,) = self.raw.execute(text, values or None).fetchone() or ([],)
        plan = found[0]["Plan"]
        self.touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return []


class Lives:
    """Groups of runs that begin, are claimed, take their steps and end, with the pages of each act."""

    def __init__(self, harness: StoreHarness, session: Pages) -> None:
        self._harness = harness
        self._session = session
        self._born = 0

    def live(self) -> dict[str, int]:
        authors = [self._harness.author(f"run-{self._born + number}") for number in range(RUNS)]
        self._born += RUNS
        found = {"create": self._commit(authors, [author.first() for author in authors])}
        self._session.rows("claim_tasks", ("r1", ["default"], None, None, None, True, [], RUNS))
        found["claim"] = self._session.touched
        self._commit(authors, [author.draft(claimed("r1")) for author in authors])
        for step in range(1, STEPS + 1):
            drafts = [author.draft(started(step), completed(step)) for author in authors]
            found["step"] = self._commit(authors, drafts)
        ends = [author.draft(e.WorkflowCompleted(result=msgspec.Raw(b"1")), task=Ended()) for author in authors]
        found["end"] = self._commit(authors, ends)
        return found

    def _commit(self, authors: list[Author], drafts: list[Write]) -> int:
        commit_work(drafts)(self._session)
        for author, draft in zip(authors, drafts, strict=True):
            author.accept(draft)
        return self._session.touched


def test_a_commit_touches_as_few_pages_after_many_as_at_first() -> None:
    url = timed_url()

    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        await register(store, "r1")
        plain = session_of(url)
        session = Pages(plain.raw, plain.STATEMENTS)
        try:
            lives = Lives(harness, session)
            first = [lives.live() for _ in range(3)][-1]
            last = [lives.live() for _ in range(LIVES)][-1]
            session.raw.execute("SELECT pg_stat_force_next_flush()")
        finally:
            session.close()
        for act, pages in last.items():
            assert pages <= 2 * first[act] + RUNS, f"{act} touched {first[act]} pages at first, and {pages} later"
        ended = query(url, "SELECT count(*) FROM {schema}.runs WHERE ended")
        assert ended == [((LIVES + 3) * RUNS,)], "the lives did not happen"
        assert query(url, "SELECT count(*) FROM {schema}.tasks") == [(0,)]

    play(test, url)
    ((updates, heap_only),) = query(url, _UPDATES, (address_of(url).schema,))
    # The last update of a life moves the run between two indexes.
    assert heap_only >= 0.8 * updates * (STEPS + 1) / (STEPS + 2)
    assert updates >= LIVES * RUNS * STEPS
