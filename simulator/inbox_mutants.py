"""Inbox mutants: planted bugs of inboxes, and of what a run makes of its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.leaf import Leaf
from buoy.engine import read_log
from buoy.engine.run.mailbox import ChildEnd, Mailbox, Reason
from buoy.ports.records import Message, Outcome, Receipt, Write
from buoy.ports.store import Store
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class ForgetInbox(Mutant):
    """A message that was read once is never shown again, although no event consumed it."""

    name = "forget-inbox"
    rules = ("runs end or wait for something real", "runs end when all is answered", "signals come in their order")
    enough = 80

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[RunId, int] = {}

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = await store.commit(writes)
        for write in writes:
            self.seen(write.run_id, write.seen)
        return outcomes

    def inbox(self, run_id: RunId, messages: list[Message]) -> list[Message]:
        return [message for message in messages if message.number > self._seen.get(run_id, 0)]

    def seen(self, run_id: RunId, number: int) -> None:
        self._seen[run_id] = max(number, self._seen.get(run_id, 0))


class TimestampCursor(Mutant):
    """Messages are read on from a time: one that was stamped earlier and stored later is never shown."""

    name = "order-by-timestamp"
    rules = ("runs end or wait for something real", "runs end when all is answered", "signals come in their order")
    enough = 60

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[RunId, set[int]] = {}
        self._cursor: dict[RunId, float] = {}

    def inbox(self, run_id: RunId, messages: list[Message]) -> list[Message]:
        shown, cursor = self._shown.setdefault(run_id, set()), self._cursor.get(run_id, 0.0)
        found = [message for message in messages if message.number in shown or float(message.sent_at) >= cursor]
        shown.update(message.number for message in found)
        self._cursor[run_id] = max([cursor, *(float(message.sent_at) for message in found)])
        return found


class ForgetDedupe(Mutant):
    """A message that is sent again is another message."""

    name = "forget-dedupe"
    rules = ("no acknowledged message is lost", "signals have one effect")
    enough = 10

    def __init__(self) -> None:
        super().__init__()
        self._count = count(1)

    async def send(self, store: Store, message: Message) -> Receipt:
        return await store.send(msgspec.structs.replace(message, dedupe=f"{message.dedupe}+{next(self._count)}"))


class LoseMessage(Mutant):
    """Some messages are called sent and are not."""

    name = "lose-a-message"
    rules = ("no acknowledged message is lost", "runs end or wait for something real", "runs end when all is answered")
    enough = 10

    def __init__(self) -> None:
        super().__init__()
        self._count = count(1)

    async def send(self, store: Store, message: Message) -> Receipt:
        if next(self._count) % 6:
            return await store.send(message)
        known = await store.inbox(message.run_id)
        return Receipt(len(known) + 1)


class PageBorder(Mutant):
    """A reader that pages through an inbox skips the message after a full page."""

    name = "skip-at-a-page-border"
    rules = ("runs end or wait for something real", "runs end when all is answered", "signals come in their order")
    enough = 60

    def install(self, world: World) -> None:
        async def inbox_pages(store: Store, run_id: RunId, after: int = 0) -> AsyncIterator[list[Message]]:
            while page := await store.inbox(run_id, after, 1):
                yield page
                after = page[-1].number + 1

        self.patch(read_log, "inbox_pages", inbox_pages)


class RefuseAnEnd(Mutant):
    """The end of a child is refused while its parent waits for it."""

    name = "refuse-the-child"
    rules = ("what is refused has a reason", "runs end or wait for something real")
    enough = 20

    def install(self, world: World) -> None:
        def child(mailbox: Mailbox, end: ChildEnd) -> Leaf | None:
            return None

        self.patch(Mailbox, "_child", child)


class RefuseResume(Mutant):
    """A request to resume is refused though the run is paused."""

    name = "refuse-a-resume"
    rules = ("what is refused has a reason", "runs end or wait for something real", "runs end when all is answered")
    enough = 60

    def install(self, world: World) -> None:
        def resume(mailbox: Mailbox, message: Message, body: Reason) -> None:
            mailbox._refuse(message, "the run is not paused")

        self.patch(Mailbox, "_resume", resume)


INBOX_MUTANTS: tuple[type[Mutant], ...] = (
    ForgetInbox,
    TimestampCursor,
    ForgetDedupe,
    LoseMessage,
    PageBorder,
    RefuseAnEnd,
    RefuseResume,
)
