"""Inboxes in objects: messages numbered by create-if-absent, each with a `wake/` entry until its run's owner saw it.

Invariants: numbers have no gaps, since a sender takes the first that is free. A dedupe id has one message: a sender
takes a number only after it has met the ids of all messages below it (`inbox_ids`).
The wake-up is written before the message. Only a process that has seen exactly that message removes it.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b

import msgspec

from buoy.core.ids import RunId, RunnerId, check_message_dedupe
from buoy.core.limits import MESSAGE_BYTES_MAX, SEND_TRIES_MAX
from buoy.core.log.inbox_room import check_room, may_be_full
from buoy.errors import CorruptLog, TooLarge, Unavailable, UnknownRun
from buoy.ports.records import Message, Receipt
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket, Exists
from buoy.stores.objects.inbox.dedupe_ids import InboxIds, StoredMessage
from buoy.stores.objects.inbox.turns import Turns
from buoy.stores.objects.index.entries import Index, each
from buoy.stores.objects.records import StoredRun
from buoy.stores.objects.runs import Runs
from buoy.stores.store_clock import StoreClock
from buoy.stores.unreadable import decoded

# A sender that lost a race for a number waits for up to a second, then for up to four, then for up to sixteen: who
# loses twice meets many others, and each further loss costs a write.
PAUSES_S = (1.0, 4.0, 16.0)

_MESSAGES = msgspec.json.Decoder(Message)


class Inboxes:
    """Sends and reads messages, and lists runs with unread ones."""

    def __init__(self, bucket: Bucket, index: Index, runs: Runs, clock: StoreClock) -> None:
        self._bucket = bucket
        self._index = index
        self._runs = runs
        self._clock = clock
        self._turns = Turns()
        self._ids = InboxIds(bucket)

    async def send(self, message: Message) -> Receipt:
        check_message_dedupe(message.dedupe)
        if len(bytes(message.body)) > MESSAGE_BYTES_MAX:
            raise TooLarge(
                f"the {message.kind} for {message.run_id} has {len(bytes(message.body)):,} bytes, the limit is "
                f"{MESSAGE_BYTES_MAX:,}; store it elsewhere and send a reference"
            )
        async with self._turns.of(message.run_id):
            receipt = await self._number(message)
        await self._check_there(message.run_id, receipt.number)
        if (known := self._runs.known(message.run_id)) is not None and known.document.ended:
            await self._let_rest(message.run_id, receipt.number)
        return receipt

    async def _number(self, message: Message) -> Receipt:
        """Takes the first free number for the message, unless a twin has one."""
        view, head = await self._target(message.run_id)
        twin = await self._ids.twin(message, head)
        if twin is not None:
            return Receipt(twin, duplicate=True)
        # A run that ended has no task and consumes nothing: waiting for room would be in vain.
        if view.task.kind != "none" and may_be_full(head):
            check_room(message.run_id, message.kind, head, view.document)
        sent_at = self._clock.stamp(float(message.sent_at) or self._clock.now())
        message = msgspec.structs.replace(message, sent_at=sent_at)
        number = head + 1
        contended = 0
        for lost in range(SEND_TRIES_MAX):
            if lost:
                await asyncio.sleep(_pause_s(message.dedupe, lost))
                # A look is cheaper than two writes for a number that another sender has taken.
                head = await self._runs.inbox_ends.end(message.run_id, number - 1)
                if number <= head:
                    # The last message tells the ids of those before it: one read, however many senders were quicker.
                    twin = await self._ids.twin(message, head)
                    if twin is not None:
                        return Receipt(twin, duplicate=True)
                    number = head + 1
            # A wake-up that is there shows that another sender is after this number, so this one makes way once.
            # If the number is still free after the pause, that sender was killed, or is very slow.
            if await self._wake(message.run_id, number) or number == contended:
                receipt = await self._put(self._ids.numbered(message, number))
                if receipt is not None:
                    return receipt
            contended = number
        raise Unavailable(f"the inbox of {message.run_id} grows too fast; try again")

    async def _target(self, run_id: RunId) -> tuple[StoredRun, int]:
        """The run and the number of its last message."""
        view = self._runs.known(run_id) or await self._runs.load(run_id)
        head = 0 if view is None else await self._runs.inbox_head(view)
        if view is not None and may_be_full(head):
            view = await self._runs.load(run_id)
        if view is None:
            raise UnknownRun(f"there is no run {run_id} in this store")
        return view, head

    async def _check_there(self, run_id: RunId, number: int) -> None:
        """A message to a run that was purged in between is lost, so it is not acknowledged."""
        if await self._runs.purged(run_id):
            await self._bucket.delete(layout.inbox_key(run_id, number))
            await self._index.drop([layout.wake_key(run_id, number)])
            raise UnknownRun(f"there is no run {run_id} in this store")

    async def _let_rest(self, run_id: RunId, number: int) -> None:
        """Removes the wake-up of a message to a run that ended: no owner will.

        The run is read after the message is there. If it comes back later, its next owner reads its inbox by itself.
        """
        view = await self._runs.load(run_id)
        if view is not None and view.document.ended and view.task.kind == "none":
            await self._index.drop([layout.wake_key(run_id, number)])

    async def _wake(self, run_id: RunId, number: int) -> bool:
        """Writes the wake-up of a message that is about to be written. False: it is there already."""
        key, since = layout.wake_key(run_id, number), self._clock.monotonic()
        try:
            await self._bucket.create(key, b"{}")
        except Exists:
            return False
        await self._index.refresh([(key, b"{}")], since)
        return True

    async def _put(self, message: StoredMessage) -> Receipt | None:
        """Takes this number for the message, whose wake-up is there; None if it is taken."""
        data = msgspec.json.encode(message)
        key = layout.inbox_key(message.run_id, message.number)
        try:
            await self._bucket.create(key, data)
        except (Exists, Unavailable) as error:
            # Law 2: it may be this message, sent twice on its way.
            found = await self._bucket.get(key)
            if found is None:
                raise Unavailable(f"{key} was not answered clearly, and nothing is there; try again") from error
            if found[0] != data:
                return None
        self._ids.met(message)
        return Receipt(message.number)

    async def read(self, run_id: RunId, after: int, limit: int | None = None) -> list[Message]:
        end = await self._runs.inbox_ends.end(run_id, after)
        head = end if limit is None else min(end, after + limit)
        # By number, not by key: a listing may miss what is written during it, but numbers have no gaps.
        return await each(range(after + 1, head + 1), lambda number: self._message(run_id, number))

    async def _message(self, run_id: RunId, number: int) -> Message:
        key = layout.inbox_key(run_id, number)
        found = await self._bucket.get(key)
        if found is None and await self._runs.purged(run_id):
            raise UnknownRun(f"there is no run {run_id} in this store")
        if found is None:
            raise CorruptLog(f"{key} is missing, though later messages are there")
        return decoded(_MESSAGES.decode, found[0], key)

    async def unread_runs(self, runner: RunnerId) -> list[RunId]:
        """Runs of this runner with a message that it has not seen. Costs one listing while there are none."""
        woken = await self.woken()
        if not woken:
            return []
        held = {
            entry.run_id
            for key in await self._bucket.list(layout.held_prefix(runner))
            if (entry := layout.held_entry(key)) is not None
        }
        mine = [run_id for run_id in woken if run_id in held]
        poked = await each(mine, lambda run_id: self._poked(run_id, runner, woken[run_id]))
        return [run_id for run_id, unseen in zip(mine, poked, strict=True) if unseen]

    async def woken(self) -> dict[RunId, list[layout.WakeEntry]]:
        """The wake-ups by run."""
        found: dict[RunId, list[layout.WakeEntry]] = {}
        for key in await self._bucket.list(layout.WAKE):
            entry = layout.wake_entry(key)
            if entry is not None:
                found.setdefault(entry.run_id, []).append(entry)
        return found

    async def _poked(self, run_id: RunId, runner: RunnerId, entries: list[layout.WakeEntry]) -> bool:
        view = await self._runs.look(run_id)
        if not isinstance(view, StoredRun) or view.task.kind != "held" or view.task.holder != runner:
            return False
        seen = max(view.task.seen, self._runs.seen.get(run_id, 0))
        return await self.unseen(view, entries, seen)

    async def unseen(self, view: StoredRun, entries: list[layout.WakeEntry], seen: int) -> bool:
        """Whether there is a message beyond `seen`. Wake-ups that were seen are removed, early ones doubted."""
        await self._index.drop([entry.key for entry in entries if entry.number <= seen])
        left = [entry for entry in entries if entry.number > seen]
        head = await self._runs.inbox_ends.end(view.run_id, seen)
        for entry in left:
            if entry.number <= head:
                self._index.trust(entry.key)
            else:
                await self._index.doubt(entry.key)
        return head > seen

    async def mark_read(self, run_id: RunId, runner: RunnerId, number: int) -> None:
        """Records that the owner has looked up to this number. Only the owner may: its successor looks again."""
        keys = await self._bucket.list(layout.wake_prefix(run_id))
        view = await self._runs.load(run_id)
        if view is None or view.task.kind != "held" or view.task.holder != runner:
            return
        self._runs.seen[run_id] = max(number, self._runs.seen.get(run_id, 0))
        entries = [entry for key in keys if (entry := layout.wake_entry(key)) is not None]
        await self._index.drop([entry.key for entry in entries if entry.number <= number])


def _pause_s(dedupe: str, lost: int) -> float:
    """How long to wait after a lost race for a number. Senders of other processes wait for other times."""
    spread = int.from_bytes(blake2b(f"{dedupe} {lost}".encode(), digest_size=4).digest(), "big") / 2**32
    return PAUSES_S[min(lost, len(PAUSES_S)) - 1] * spread
