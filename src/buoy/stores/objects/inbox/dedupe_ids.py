"""The dedupe ids of inboxes in objects: which message has which.

Invariants: a message repeats the ids of those right before it, shortened, so one read tells the ids of many messages.
A shortened id is only a hint: the message with that number decides. Messages never change, so what was read once is
remembered. A message without the ids before it (an earlier Buoy wrote it) tells its own alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from buoy.core.ids import RunId
from buoy.ports.records import Message
from buoy.stores.objects import layout
from buoy.stores.objects.bucket import Bucket
from buoy.stores.unreadable import GARBLED

# Ids that a message repeats, and so many characters each.
REPEATED = 63
CHARS = 8
# Ids that this process remembers. Beyond that it reads them again.
KNOWN_MAX = 200_000


class StoredMessage(Message, frozen=True, omit_defaults=True):
    """A message as it is stored: with the ids of the messages before it, the nearest first."""

    before: str = ""


_MESSAGES = msgspec.json.Decoder(StoredMessage)


class _Ids:
    """The ids of one inbox: all up to `end`, by number."""

    def __init__(self) -> None:
        self.end = 0
        self.by_number: dict[int, str] = {}
        self.numbers: dict[str, list[int]] = {}

    def add(self, number: int, short: str) -> None:
        if number not in self.by_number:
            self.by_number[number] = short
            self.numbers.setdefault(short, []).append(number)


class InboxIds:
    """Finds the message with a dedupe id."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._known: dict[RunId, _Ids] = {}
        self._size = 0

    async def twin(self, message: Message, head: int) -> int | None:
        """The number of the message with this one's dedupe id, among all up to `head`."""
        ids = await self._up_to(message.run_id, head)
        for number in ids.numbers.get(short_id(message.dedupe), ()):
            found = await self._read(message.run_id, number)
            if found is not None and found.dedupe == message.dedupe:
                return number
        return None

    def met(self, message: Message) -> None:
        """This message is there; those below it were met before."""
        ids = self._known.get(message.run_id)
        if ids is not None and ids.end == message.number - 1:
            self._note(ids, message.number, short_id(message.dedupe))
            ids.end = message.number

    def numbered(self, message: Message, number: int) -> StoredMessage:
        """The message as it is stored under that number. All below it were met."""
        ids = self._known.get(message.run_id)
        return with_ids_before(message, number, {} if ids is None else ids.by_number)

    async def _up_to(self, run_id: RunId, head: int) -> _Ids:
        """Reads from the last message down to what is known."""
        if self._size >= KNOWN_MAX:
            self._known.clear()
            self._size = 0
        ids = self._known.setdefault(run_id, _Ids())
        number, end = head, ids.end
        while number > end:
            found = await self._read(run_id, number)
            if found is None:
                # It cannot be read by its run either; what it would repeat is read from the messages themselves.
                number -= 1
                continue
            self._note(ids, number, short_id(found.dedupe))
            before = [found.before[place : place + CHARS] for place in range(0, len(found.before), CHARS)]
            for distance, short in enumerate(before, 1):
                self._note(ids, number - distance, short)
            number -= 1 + len(before)
        ids.end = max(ids.end, head)
        return ids

    def _note(self, ids: _Ids, number: int, short: str) -> None:
        if number > 0:
            self._size += number not in ids.by_number
            ids.add(number, short)

    async def _read(self, run_id: RunId, number: int) -> StoredMessage | None:
        """The message; None if it is missing or garbled."""
        found = await self._bucket.get(layout.inbox_key(run_id, number))
        try:
            return None if found is None else _MESSAGES.decode(found[0])
        except GARBLED:
            return None


def with_ids_before(message: Message, number: int, by_number: Mapping[int, str]) -> StoredMessage:
    """The message with the ids right before that number, as far as they are known."""
    before: list[str] = []
    for earlier in range(number - 1, max(number - 1 - REPEATED, 0), -1):
        if earlier not in by_number:
            break
        before.append(by_number[earlier])
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return StoredMessage(**{**fields, "number": number}, before="".join(before))


def short_id(dedupe: str) -> str:
    return blake2b(dedupe.encode(), digest_size=CHARS // 2).hexdigest()
