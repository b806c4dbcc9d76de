"""Groups of commits that collide with other transactions: they are split, and one run's collisions are its own."""

from __future__ import annotations

import pytest

from buoy.errors import Unavailable
from buoy.ports.records import Committed, Held, Write
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.contracts.harness import StoreHarness, claimed, register
from tests.postgres_server import query, server

from .test_postgres import play

RUNS = 8
HIT = "run-3"
# A sequence counts on, although the transaction that used it is rolled back.
STRIKES = """
CREATE SEQUENCE {{schema}}.strikes;
CREATE FUNCTION {{schema}}.strike() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.run_id = '{hit}' AND nextval('{{schema}}.strikes') <= {times} THEN
    RAISE EXCEPTION 'planted' USING ERRCODE = '{code}';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER strike BEFORE UPDATE ON {{schema}}.runs FOR EACH ROW EXECUTE FUNCTION {{schema}}.strike();
"""


async def drafts_of(harness: StoreHarness, store: PostgresStore, code: str, times: int) -> list[Write]:
    """The next commit of each run. The first `times` tries with the run that is hit fail with that code."""
    runner = await register(store, "r1")
    authors = [harness.author(f"run-{number}") for number in range(RUNS)]
    await store.commit([author.first(Held(runner)) for author in authors])
    for author in authors:
        author.log = await store.events(author.run_id)
    query(url_of(store), STRIKES.format(hit=HIT, times=times, code=code))
    return [author.draft(claimed("r1")) for author in authors]


def url_of(store: PostgresStore) -> str:
    return server().url(store._opened.address.schema)


@pytest.mark.parametrize("code", ["40001", "40P01"], ids=["serialization", "deadlock"])
def test_a_group_that_collides_is_split_and_each_run_is_committed_once(code: str) -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        drafts = await drafts_of(harness, store, code, times=4)
        assert await store.commit(drafts) == [Committed(2)] * RUNS
        assert query(url_of(store), "SELECT last_value FROM {schema}.strikes") == [(5,)], "8, 4, 2, 1 and 1 runs"
        for draft in drafts:
            assert len(await store.events(draft.run_id)) == 2

    play(test)


def test_a_run_that_always_collides_keeps_no_other_from_its_commit() -> None:
    async def test(harness: StoreHarness, store: PostgresStore) -> None:
        drafts = await drafts_of(harness, store, "40001", times=1_000)
        with pytest.raises(Unavailable):
            await store.commit(drafts)
        landed = await store.landed(drafts)
        expected = [None if draft.run_id == HIT else Committed(2) for draft in drafts]
        assert landed == expected
        query(url_of(store), "DROP TRIGGER strike ON {schema}.runs")
        assert await store.commit([draft for draft in drafts if draft.run_id == HIT]) == [Committed(2)]

    play(test)
