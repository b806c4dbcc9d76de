"""The contract of the inbox: numbers without gaps, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from buoy.core import limits
from buoy.core.ids import RunId
from buoy.core.limits import MESSAGE_BYTES_MAX, MESSAGE_DEDUPE_CHARS_MAX
from buoy.core.log.events import ErrorInfo, MessageRefused, WorkflowFailed
from buoy.errors import BadInput, InboxFull, TooLarge, UnknownRun
from buoy.ports.records import Ended, Held, Receipt
from buoy.testing.contracts.harness import Contract, StoreHarness, claimed, message, register, with_harness

RUN = RunId("run-1")
SENDERS = 8
MESSAGES_EACH = 25


@contextmanager
def small_inboxes(signals: int, reserve: int) -> Iterator[None]:
    """Inboxes that are full after so many messages, in this process."""
    before = limits.INBOX_UNREAD_MAX, limits.INBOX_RESERVE
    limits.INBOX_UNREAD_MAX, limits.INBOX_RESERVE = signals, reserve
    try:
        yield
    finally:
        limits.INBOX_UNREAD_MAX, limits.INBOX_RESERVE = before


class InboxContract(Contract):
    @with_harness
    async def test_concurrent_senders_get_numbers_without_gaps_and_lose_nothing(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(SENDERS)
        await harness.author(RUN).create(stores[0])

        async def send(sender: int) -> list[Receipt]:
            return [await stores[sender].send(message(RUN, f"{sender}-{n}")) for n in range(MESSAGES_EACH)]

        receipts = [each for some in await asyncio.gather(*map(send, range(SENDERS))) for each in some]
        assert sorted(receipt.number for receipt in receipts) == list(range(1, SENDERS * MESSAGES_EACH + 1))
        assert not any(receipt.duplicate for receipt in receipts)
        found = await stores[-1].inbox(RUN)
        assert [each.number for each in found] == list(range(1, SENDERS * MESSAGES_EACH + 1))
        assert len({each.dedupe for each in found}) == SENDERS * MESSAGES_EACH
        record = await stores[1].run(RUN)
        assert record is not None and record.inbox_head == SENDERS * MESSAGES_EACH

    @with_harness
    async def test_a_dedupe_id_sent_twice_has_one_number(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await harness.author(RUN).create(store)
        assert await store.send(message(RUN, "first")) == Receipt(1)
        assert await store.send(message(RUN, "again", b"1")) == Receipt(2)
        assert await other.send(message(RUN, "again", b"2")) == Receipt(2, duplicate=True)
        assert await store.send(message(RUN, "third")) == Receipt(3)
        assert [bytes(each.body) for each in await other.inbox(RUN, after=1)] == [b"1", b'{"to": "you"}']

    @with_harness
    async def test_a_message_may_be_the_answer_to_the_longest_question_id(self, harness: StoreHarness) -> None:
        (store,) = await harness.open_many(1)
        await harness.author(RUN).create(store)
        longest = "a" * MESSAGE_DEDUPE_CHARS_MAX
        assert await store.send(message(RUN, longest)) == Receipt(1)
        assert await store.send(message(RUN, longest)) == Receipt(1, duplicate=True)
        with pytest.raises(BadInput):
            await store.send(message(RUN, f"{longest}a"))

    @with_harness
    async def test_a_dedupe_id_sent_by_all_at_once_is_stored_once(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(6)
        await harness.author(RUN).create(stores[0])
        receipts = await asyncio.gather(*(store.send(message(RUN, "same")) for store in stores))
        assert {receipt.number for receipt in receipts} == {1}
        assert sorted(receipt.duplicate for receipt in receipts) == [False] + [True] * 5
        assert len(await stores[0].inbox(RUN)) == 1

    @with_harness
    async def test_the_same_dedupe_id_for_another_run_is_another_message(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await harness.author("run-1").create(store)
        await harness.author("run-2").create(store)
        assert await store.send(message("run-1", "same")) == Receipt(1)
        assert await store.send(message("run-2", "same")) == Receipt(1)

    @with_harness
    async def test_messages_survive_reopening_as_they_were_sent(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await harness.author(RUN).create(store)
        for number in range(5):
            harness.clock.advance(1.0)
            await store.send(message(RUN, f"key {number}", b'{"n": [%d, null, "\xc3\xa9"]}' % number))
        before = await store.inbox(RUN)
        await store.close()
        other = await harness.open()
        assert await other.inbox(RUN) == before
        assert await other.inbox(RUN, after=3) == before[3:]
        assert await other.inbox(RUN, after=5) == []
        assert [each.dedupe for each in before] == [f"key {number}" for number in range(5)]
        assert [each.sent_at for each in before] == [harness.clock.now() - 4.0 + number for number in range(5)]
        assert all((each.run_id, each.kind) == (RUN, "signal") for each in before)
        # A server puts the name of the caller before it.
        assert all(str(each.by).endswith("contract") for each in before)
        assert await other.send(message(RUN, "next")) == Receipt(6)

    @with_harness
    async def test_an_inbox_is_read_by_pages(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await harness.author(RUN).create(store)
        for number in range(10):
            await store.send(message(RUN, f"key {number}"))

        async def page(after: int, limit: int) -> list[int]:
            return [each.number for each in await other.inbox(RUN, after, limit)]

        assert await page(0, 4) == [1, 2, 3, 4]
        assert await page(4, 4) == [5, 6, 7, 8]
        assert await page(8, 4) == [9, 10]
        assert (await page(10, 4), await page(0, 0)) == ([], [])

    @with_harness
    async def test_a_message_for_an_unknown_run_is_refused(self, harness: StoreHarness) -> None:
        store = await harness.open()
        with pytest.raises(UnknownRun, match="nobody"):
            await store.send(message("nobody", "d"))
        assert await store.inbox(RunId("nobody")) == []

    @with_harness
    async def test_a_message_over_the_limit_is_refused_and_leaves_no_gap(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await harness.author(RUN).create(store)
        fits = b'"' + b"x" * (MESSAGE_BYTES_MAX - 2) + b'"'
        with pytest.raises(TooLarge):
            await store.send(message(RUN, "big", fits + b" "))
        assert await store.send(message(RUN, "fits", fits)) == Receipt(1)
        assert bytes((await store.inbox(RUN))[0].body) == fits

    @with_harness
    async def test_a_run_that_ended_still_keeps_what_it_is_sent(self, harness: StoreHarness) -> None:
        store = await harness.open()
        author = await harness.author(RUN).create(store)
        await author.append(store, WorkflowFailed(error=ErrorInfo(type="E", message="no")), task=Ended())
        assert await store.send(message(RUN, "late")) == Receipt(1)
        assert await store.send(message(RUN, "late")) == Receipt(1, duplicate=True)
        assert len(await store.inbox(RUN)) == 1

    @with_harness
    async def test_what_is_sent_and_not_consumed_is_bounded_however_often_it_was_seen(
        self, harness: StoreHarness
    ) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        await author.append(store, claimed("r1"))
        with small_inboxes(3, 2):
            for number in range(1, 4):
                await other.send(message(RUN, f"{number}"))
                await store.mark_read(RUN, runner, number)
            with pytest.raises(InboxFull, match="run-1 is full: 3 messages"):
                await other.send(message(RUN, "4"))
            assert await other.send(message(RUN, "3")) == Receipt(3, duplicate=True)
            refused = [MessageRefused(message=number, reason="nothing waits for it") for number in (1, 3)]
            await author.append(store, *refused, task=Held(runner), seen=3)
            assert await other.send(message(RUN, "4")) == Receipt(4)
            assert await other.send(message(RUN, "5")) == Receipt(5)
            with pytest.raises(InboxFull):
                await store.send(message(RUN, "6"))

    @with_harness
    async def test_signals_leave_room_for_requests_and_for_ends_of_children(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await harness.author(RUN).create(store)
        with small_inboxes(2, 2):
            await store.send(message(RUN, "1"))
            await store.send(message(RUN, "2"))
            for number, kind in ((3, "cancel"), (4, "child_finished")):
                request = msgspec.structs.replace(message(RUN, kind), kind=kind)
                assert await store.send(request) == Receipt(number)
            with pytest.raises(InboxFull, match="limit for a pause is 4"):
                await store.send(msgspec.structs.replace(message(RUN, "p"), kind="pause"))
