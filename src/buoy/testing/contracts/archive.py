"""The contract of the archive: whole runs come whole and go whole, and a used id stays used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.core.times import StoreTime
from buoy.errors import UnknownRun, WrongState
from buoy.ports.maintenance import RunCopy, TaskFound, Tombstone
from buoy.ports.records import Committed, Ended, FencedOut, Held, Message, Orphan, RunQuery
from buoy.ports.store import Store
from buoy.testing.contracts.harness import (
    Author,
    Contract,
    StoreHarness,
    claim,
    claimed,
    committed,
    message,
    play,
    register,
    with_harness,
)

RUN = RunId("run-1")
OVER = e.WorkflowFailed(error=e.ErrorInfo(type="E", message="no"))
LONG = 2_500


def copy_of(*bodies: e.Body, messages: int = 0, run_id: RunId = RUN, name: str = "copy") -> RunCopy:
    """A run as it comes from elsewhere: created, then what is given."""
    created = e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}"))
    events = tuple(e.Event(seq, 900.0 + seq / 1000, body) for seq, body in enumerate((created, *bodies), 1))
    sent = tuple(
        Message(run_id, "signal", f"m{number}", msgspec.Raw(b'{"name": "go"}'), StoreTime(900.0), number, "elsewhere")
        for number in range(1, messages + 1)
    )
    return RunCopy(
        id=name, document=document(fold(run_id, events)), events=events, messages=sent, generation=3
    )  # fmt: skip


def held(messages: int = 0, name: str = "copy") -> RunCopy:
    return copy_of(claimed("r0"), e.Paused(reason="hold"), messages=messages, name=name)


async def ended_run(harness: StoreHarness, store: Store, run_id: str = RUN) -> Author:
    author = await harness.author(run_id).create(store, Held(await register(store, "r1")))
    await store.send(message(run_id, "hello"))
    await author.append(store, claimed("r1"), OVER, task=Ended())
    return author


async def stone_of(store: Store, run_id: RunId = RUN) -> Tombstone:
    record = await store.run(run_id)
    assert record is not None
    doc = record.document
    return Tombstone(
        doc.run_id, doc.workflow, doc.status, doc.head_seq, doc.created_at, doc.updated_at, 5_000.0, by="me"
    )


class ArchiveContract(Contract):
    @with_harness
    async def test_a_copy_is_read_back_the_same_by_everybody(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        copy = held(messages=20)
        assert await store.archive.import_run(copy)
        for each in (store, other, await harness.open()):
            assert await each.events(RUN) == list(copy.events)
            assert await each.inbox(RUN) == list(copy.messages)
            record = await each.run(RUN)
            assert record is not None and record.document == copy.document
            assert (record.envelope.generation, record.holder, record.due_at) == (3, None, None)
            assert record.inbox_head == 20
            assert [found.document.run_id for found in (await each.find_runs(RunQuery())).runs] == [RUN]

    @with_harness
    async def test_a_copy_starts_nothing_until_it_is_spoken_to(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        await store.archive.import_run(held(messages=3))
        harness.clock.advance(1e6)
        assert await claim(store, runner) == []
        assert await store.orphans(10) == []
        assert (await store.send(message(RUN, "new"))).number == 4
        assert (await store.send(message(RUN, "m2"))).duplicate
        assert await claim(store, runner) == [RUN]

    @with_harness
    async def test_a_copy_that_ended_has_no_task(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        assert await store.archive.import_run(copy_of(claimed("r0"), OVER, messages=2))
        harness.clock.advance(1e6)
        assert await claim(store, runner) == []
        assert await store.orphans(10) == []
        assert [each.document.status for each in (await store.find_runs(RunQuery(("failed",)))).runs] == ["failed"]

    @with_harness
    async def test_a_long_copy_is_read_by_pages_and_gone_on_with(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        leaves = [e.TimerStarted(leaf=LeafId(f"timer#{number}"), due_at=1.0) for number in range(LONG)]
        copy = copy_of(claimed("r0"), *leaves, e.Paused(reason="hold"))
        await store.archive.import_run(copy)
        author = await harness.reader_of(other, RUN)
        await author.append(other, claimed("r1"), e.Resumed(), task=Held(await register(other, "r1")))
        whole = [*copy.events, *author.log[len(copy.events) :]]
        assert await store.events(RUN) == whole
        for after, limit in ((0, 10), (998, 5), (999, 1), (1_000, 1_000), (LONG, None), (LONG + 2, 3), (LONG + 9, 5)):
            expected = whole[after:] if limit is None else whole[after : after + limit]
            assert await store.events(RUN, after, limit) == expected, (after, limit)

    @with_harness
    async def test_of_two_copies_or_a_copy_and_a_new_run_one_wins(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        assert await store.archive.import_run(held(name="one"))
        assert not await other.archive.import_run(held(messages=1, name="two"))
        assert await store.inbox(RUN) == []
        assert isinstance(await committed(other, harness.author(RUN).first()), FencedOut)
        await harness.author("mine").create(store)
        mine = copy_of(claimed("r0"), OVER, run_id=RunId("mine"))
        assert not await store.archive.import_run(mine)
        assert len(await store.events(RunId("mine"))) == 1

    @with_harness
    async def test_a_purged_run_is_gone_but_for_its_tombstone(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await ended_run(harness, store)
        await ended_run(harness, store, "kept")
        assert await other.run(RUN) is not None
        stone = await stone_of(store)
        assert await store.archive.purge(stone)
        # The other one knew the run a moment ago.
        for each in (other, store, await harness.open()):
            with pytest.raises(UnknownRun):
                await each.send(message(RUN, "d"))
            assert await each.run(RUN) is None
            assert await each.events(RUN) == []
            assert await each.inbox(RUN) == []
            assert [found.document.run_id for found in (await each.find_runs(RunQuery())).runs] == ["kept"]
            assert await each.run_ids(RUN, 10) == await each.run_ids(RUN[:-1], 10) == []
            assert await each.archive.tombstone(RUN) == stone
            assert await each.archive.tombstone(RunId("kept")) is None
            assert await each.archive.half_purged() == []
        assert len(await store.events(RunId("kept"))) == 3

    @with_harness
    async def test_the_id_of_a_purged_run_is_used_up(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        zombie = await ended_run(harness, other)
        stone = await stone_of(store)
        await store.archive.purge(stone)
        for each in (store, other, await harness.open()):
            assert isinstance(await committed(each, harness.author(RUN).first()), FencedOut)
            late = zombie.draft(claimed("r1"), task=Held(await register(each, "r1")))
            assert isinstance(await committed(each, late), FencedOut)
            with pytest.raises(WrongState, match="purged"):
                await each.archive.import_run(held())
            assert await each.run(RUN) is None
        assert await claim(store, await register(store, "r2")) == []

    @with_harness
    async def test_only_what_ended_owes_nothing_and_stands_still_is_purged(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        assert not await store.archive.purge(await stone_of(store))
        await author.append(store, claimed("r1"), OVER)
        assert not await store.archive.purge(await stone_of(store)), "its task is still held"
        before = await stone_of(store)
        await author.append(store, claimed("r1"), task=Ended())
        assert not await store.archive.purge(before), "it moved on"
        assert not await store.archive.purge(msgspec.structs.replace(before, run_id=RunId("nobody")))
        assert len(await store.events(RUN)) == 4
        assert await store.archive.purge(await stone_of(store))

    @with_harness
    async def test_a_purge_and_a_new_beginning_do_not_both_happen(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        for number in range(10):
            run_id = RunId(f"run-{number}")
            author = await ended_run(harness, other, run_id)
            stone = await stone_of(store, run_id)
            again = author.draft(claimed("r1"), task=Held(await register(other, "r1")))
            both = [store.archive.purge(stone), committed(other, again)]
            purged, outcome = await asyncio.gather(*both)
            assert purged == isinstance(outcome, FencedOut)
            assert (await store.run(run_id) is None) == purged
            assert len(await other.events(run_id)) == (0 if purged else 4)
        assert len((await store.find_runs(RunQuery(), limit=RUNS_PAGE_MAX)).runs) <= 10

    @with_harness
    async def test_a_document_is_rewritten_if_the_log_still_ends_there(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        await author.append(store, claimed("r1"))
        truth = document(fold(RUN, author.log))
        lie = msgspec.structs.replace(truth, status=Status.COMPLETED, branch=7, head_seq=9)
        assert not await other.archive.rewrite(RUN, lie, 1)
        assert not await other.archive.rewrite(RUN, lie, 3)
        assert not await other.archive.rewrite(RunId("nobody"), lie, 2)
        assert await other.archive.rewrite(RUN, lie, 2)
        for each in (store, other, await harness.open()):
            record = await each.run(RUN)
            assert record is not None and (record.document, record.holder) == (lie, runner)
            assert (await each.find_runs(RunQuery(("running", "pending")))).runs == ()
        assert await store.archive.rewrite(RUN, truth, 2)
        for each in (store, other, await harness.open()):
            record = await each.run(RUN)
            assert record is not None and (record.document, record.holder) == (truth, runner)
        assert await committed(other, author.draft(OVER, task=Ended())) == Committed(3)

    @with_harness
    async def test_a_lie_does_not_keep_its_run_from_going_on(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        author = await harness.author(RUN).create(store, Held(await register(store, "r1")))
        lie = msgspec.structs.replace(document(fold(RUN, author.log)), status=Status.AWAITING_INPUT)
        assert await other.archive.rewrite(RUN, lie, 1)
        await author.append(store, claimed("r1"))
        record = await other.run(RUN)
        assert record is not None and record.document == document(fold(RUN, author.log))

    @pytest.mark.parametrize("state", ["due", "held", "parked", "missing"])
    def test_a_copy_as_it_was_found_has_its_task_as_it_was(self, tmp_path: Path, state: str) -> None:
        asyncio.run(play(self, lambda harness: self._found_with_a_task(harness, state), tmp_path))

    async def _found_with_a_task(self, harness: StoreHarness, state: str) -> None:
        store, other = await harness.open_many(2)
        due_at = harness.clock.now() + 5.0
        task = TaskFound(
            state,  # type: ignore[arg-type]
            RunnerId("lost-runner") if state == "held" else None,
            StoreTime(due_at) if state == "due" else None,
        )
        copy = msgspec.structs.replace(copy_of(claimed("lost-runner"), messages=2), found=task)
        assert await store.archive.import_run(copy)
        for each in (store, other):
            record = await each.run(RUN)
            assert record is not None and record.document == copy.document
            assert (record.holder, record.due_at, record.envelope.generation) == (task.holder, task.due_at, 3)
            assert await each.events(RUN) == list(copy.events)
            assert [found.document.run_id for found in (await each.find_runs(RunQuery(("running",)))).runs] == [RUN]
        orphans = await other.orphans(10)
        assert [orphan.run_id for orphan in orphans] == ([RUN] if state in ("held", "missing") else [])
        runner = await register(store, "r1")
        assert await claim(store, runner) == []
        harness.clock.advance(10.0)
        for orphan in orphans:
            assert await store.requeue_orphan(orphan)
        assert await claim(store, runner) == ([] if state == "parked" else [RUN])

    @with_harness
    async def test_a_copy_as_it_was_found_keeps_a_document_that_lies(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        honest = copy_of(claimed("r0"), e.StepStarted(leaf=LeafId("a#1"), name="a"))
        truth = honest.document
        lie = msgspec.structs.replace(truth, status=Status.AWAITING_INPUT, open=(), open_count=0, head_seq=2)
        copy = msgspec.structs.replace(honest, document=lie, found=TaskFound("parked"))
        assert await store.archive.import_run(copy)
        assert await other.archive.import_run(copy) in (True, False)
        for each in (store, other, await harness.open()):
            record = await each.run(RUN)
            assert record is not None and record.document == lie
        assert await other.archive.rewrite(RUN, truth, 3)
        record = await store.run(RUN)
        assert record is not None and record.document == truth
        author = await harness.reader_of(other, RUN)
        await author.append(other, claimed("r1"), task=Held(await register(other, "r1")))

    @with_harness
    async def test_a_document_without_a_log_is_kept_and_nobody_drives_it(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        foreign = msgspec.structs.replace(copy_of().document, status=Status.RUNNING, head_seq=7)
        copy = RunCopy(id="foreign", document=foreign, events=(), found=TaskFound("missing"))
        assert await store.archive.import_run(copy)
        for each in (store, other, await harness.open()):
            record = await each.run(RUN)
            assert record is not None and record.document == foreign
            assert (record.envelope.orchestrator_task_id, record.holder, record.due_at) == (None, None, None)
            assert await each.events(RUN) == []
            assert [found.document.run_id for found in (await each.find_runs(RunQuery(("running",)))).runs] == [RUN]
            assert await each.orphans(10) == []
        assert not await store.requeue_orphan(Orphan(RUN, None, "so they say"))
        assert not await store.archive.import_run(copy)
        assert await committed(other, harness.author(RUN).first()) == Committed(1)
        assert await claim(store, await register(store, "r1")) == [RUN]
        record = await other.run(RUN)
        assert record is not None and record.envelope.orchestrator_task_id is not None
