"""The contract of the log: fencing, durability, reading back."""

from __future__ import annotations

import asyncio

from buoy.core.ids import RunId, orchestrate_task_id
from buoy.core.log import events as e
from buoy.ports.records import Committed, Ended, FencedOut, Held, Released, RunQuery
from buoy.testing.contracts.harness import (
    Contract,
    StoreHarness,
    claimed,
    committed,
    completed,
    register,
    started,
    with_harness,
)

RUN = RunId("run-1")


class LogContract(Contract):
    @with_harness
    async def test_what_was_committed_is_read_back_the_same_by_everybody(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        author = harness.author(RUN, queue="fast", stack="s", env="e")
        write = author.first(Held(await register(store, "r1")))
        assert await committed(store, write) == Committed(1)
        for each in (store, other, await harness.open()):
            assert await each.events(RUN) == list(write.events)
            record = await each.run(RUN)
            assert record is not None
            assert record.document == write.document
            assert record.envelope.generation == 1
            assert record.envelope.orchestrator_task_id == orchestrate_task_id(RUN, 1)
            assert (record.holder, record.inbox_head) == ("r1", 0)

    @with_harness
    async def test_of_two_first_writers_exactly_one_wins(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(2)
        for number in range(10):
            run_id = RunId(f"run-{number}")
            drafts = [harness.author(run_id).first() for _ in stores]
            pairs = zip(stores, drafts, strict=True)
            outcomes = await asyncio.gather(*(committed(store, draft) for store, draft in pairs))
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Committed", "FencedOut"]
            winner = drafts[[isinstance(outcome, Committed) for outcome in outcomes].index(True)]
            assert await stores[0].events(run_id) == list(winner.events)

    @with_harness
    async def test_of_eight_appenders_exactly_one_wins(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(8)
        await harness.author(RUN).create(stores[0])
        drafts = [(await harness.reader_of(store, RUN)).draft(claimed(f"r{n}")) for n, store in enumerate(stores)]
        pairs = zip(stores, drafts, strict=True)
        outcomes = await asyncio.gather(*(committed(store, draft) for store, draft in pairs))
        won = [draft for draft, outcome in zip(drafts, outcomes, strict=True) if isinstance(outcome, Committed)]
        assert len(won) == 1
        assert (await stores[0].events(RUN))[1:] == list(won[0].events)

    @with_harness
    async def test_a_stale_append_is_fenced_and_changes_nothing(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        old = await register(store, "old")
        new = await register(other, "new")
        author = await harness.author(RUN).create(store, Held(old))
        zombie = await harness.reader_of(store, RUN)
        await author.append(other, claimed("new"), task=Held(new))
        before = (await other.events(RUN), await other.run(RUN), await other.inbox(RUN))
        for task in (Ended(), Released(due_at=harness.clock.now(), now=harness.clock.now()), Held(old), None):
            draft = zombie.draft(claimed("old"), started(1), task=task, seen=3)
            assert await committed(store, draft) == FencedOut(2)
            assert (await other.events(RUN), await other.run(RUN), await other.inbox(RUN)) == before
            assert (await store.events(RUN), await store.run(RUN), await store.inbox(RUN)) == before

    @with_harness
    async def test_in_one_call_a_fenced_write_does_not_harm_its_neighbours(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        authors = [await harness.author(f"run-{number}").create(store) for number in range(5)]
        drafts = [author.draft(claimed("r1"), started(1)) for author in authors]
        await (await harness.reader_of(other, "run-2")).append(other, claimed("r2"))
        assert await store.commit(drafts) == [
            Committed(3),
            Committed(3),
            FencedOut(2),
            Committed(3),
            Committed(3),
        ]
        lengths = [len(await other.events(author.run_id)) for author in authors]
        assert lengths == [3, 3, 2, 3, 3]

    @with_harness
    async def test_an_append_to_a_run_that_is_not_there_is_fenced(self, harness: StoreHarness) -> None:
        store = await harness.open()
        author = harness.author(RUN)
        author.accept(author.first())
        assert await committed(store, author.draft(claimed("r1"))) == FencedOut(0)
        assert await store.run(RUN) is None

    @with_harness
    async def test_a_commit_of_nothing_is_nothing(self, harness: StoreHarness) -> None:
        assert await (await harness.open()).commit([]) == []

    @with_harness
    async def test_a_reader_sees_a_commit_whole_or_not_at_all(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        author = await harness.author(RUN).create(store)
        done = asyncio.Event()

        async def write() -> None:
            for number in range(1, 31):
                await author.append(store, started(number), started(number + 100), completed(number))
                await asyncio.sleep(0)
            done.set()

        async def read() -> None:
            while not done.is_set():
                assert len(await other.events(RUN)) % 3 == 1
                await asyncio.sleep(0)

        await asyncio.gather(write(), read())
        assert len(await other.events(RUN)) == 91

    @with_harness
    async def test_reading_back_tells_whose_commit_it_was(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await harness.author(RUN).create(store)
        mine = (await harness.reader_of(store, RUN)).draft(claimed("r1"), started(1))
        theirs = (await harness.reader_of(other, RUN)).draft(claimed("r2"))
        assert mine.events[0].nonce != theirs.events[0].nonce
        await other.commit([theirs])
        await store.commit([mine])
        found = await store.events(RUN, after=mine.after_seq)
        assert [event.nonce for event in found] == [theirs.events[0].nonce]

    @with_harness
    async def test_one_question_tells_which_writes_landed(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        authors = [await harness.author(f"run-{number}").create(store) for number in range(4)]
        new = harness.author("new").first()
        drafts = [author.draft(claimed("r1"), started(1)) for author in authors]
        asked = [*drafts, new, harness.author("run-0").first()]
        assert [type(each) for each in await store.landed(asked)] == [type(None)] * 5 + [FencedOut]
        await store.commit(drafts[:2])
        theirs = (await harness.reader_of(other, "run-2")).draft(claimed("r2"))
        await other.commit([theirs, harness.author("new").first()])
        for reader in (store, other):
            found = await reader.landed(asked)
            assert found[:2] == [Committed(3), Committed(3)]
            assert [type(each) for each in found[2:]] == [FencedOut, type(None), FencedOut, FencedOut]
        assert await store.landed([]) == []

    @with_harness
    async def test_pages_of_events_are_exact_within_and_across_commits(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        author = await harness.author(RUN).create(store)
        for size in (3, 1, 2, 5):
            await author.append(store, *(started(len(author.log) + number) for number in range(size)))
        for after in range(14):
            for limit in (None, 1, 2, 3, 5, 12, 100):
                expected = author.log[after:] if limit is None else author.log[after : after + limit]
                assert await other.events(RUN, after=after, limit=limit) == expected, (after, limit)

    @with_harness
    async def test_a_large_run_reads_back_the_same(self, harness: StoreHarness) -> None:
        store = await harness.open()
        author = await harness.author(RUN).create(store)
        for commit in range(100):
            steps = range(commit * 25, commit * 25 + 25)
            await author.append(store, *(body for number in steps for body in (started(number), completed(number))))
        other = await harness.open()
        assert await other.events(RUN) == author.log
        assert len(author.log) == 5_001
        assert await other.events(RUN, after=4_990, limit=5) == author.log[4_990:4_995]

    @with_harness
    async def test_what_is_absent_is_none_or_empty(self, harness: StoreHarness) -> None:
        store = await harness.open()
        nobody = RunId("nobody")
        assert await store.run(nobody) is None
        assert await store.events(nobody) == []
        assert await store.events(nobody, after=7, limit=3) == []
        assert await store.inbox(nobody) == []
        assert await store.runners() == []
        assert await store.runners(gone=9) == []
        assert await store.orphans(10) == []
        page = await store.find_runs(RunQuery())
        assert (page.runs, page.cursor) == ((), None)

    @with_harness
    async def test_the_time_is_the_clock_s(self, harness: StoreHarness) -> None:
        store = await harness.open()
        assert await store.now() == harness.clock.now()

    @with_harness
    async def test_closing_twice_is_closing_once(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await harness.author(RUN).create(store)
        await store.close()
        await store.close()
        assert [type(event.body) for event in await other.events(RUN)] == [e.WorkflowCreated]
