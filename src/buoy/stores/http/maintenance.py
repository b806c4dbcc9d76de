"""Maintenance through a server: whole runs, checks and schedules, each call carried out by the store behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from buoy.core.ids import RunId
from buoy.core.log.document import Document
from buoy.core.schedule.schedule import Schedule
from buoy.errors import NotAllowedHere
from buoy.ports.maintenance import IndexTrouble, Refusal, Remains, RunCopy, StoreCheck, Tombstone
from buoy.ports.records import Broken
from buoy.ports.tokens import TokenRecord
from buoy.stores.http.calls import Calls

# A look through a whole store.
_LONG_CALL_S = 600.0


class HttpArchive:
    """Whole runs, through a server."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls.call

    async def import_run(self, copy: RunCopy) -> bool:
        done: bool = await self._call("archive.import_run", copy=copy)
        return done

    async def purge(self, tombstone: Tombstone) -> bool:
        done: bool = await self._call("archive.purge", tombstone=tombstone)
        return done

    async def remains(self, run_id: RunId) -> Remains | None:
        found: Remains | None = await self._call("archive.remains", run_id=run_id)
        return found

    async def purge_broken(self, tombstone: Tombstone, digest: str) -> bool:
        done: bool = await self._call("archive.purge_broken", tombstone=tombstone, digest=digest)
        return done

    async def tombstone(self, run_id: RunId) -> Tombstone | None:
        found: Tombstone | None = await self._call("archive.tombstone", run_id=run_id)
        return found

    async def tombstones(self, after: RunId | None, limit: int) -> list[Tombstone]:
        found: list[Tombstone] = await self._call("archive.tombstones", after=after, limit=limit)
        return found

    async def add_tombstone(self, tombstone: Tombstone) -> bool:
        done: bool = await self._call("archive.add_tombstone", tombstone=tombstone)
        return done

    async def half_purged(self) -> list[RunId]:
        found: list[RunId] = await self._call("archive.half_purged")
        return found

    async def rewrite(self, run_id: RunId, document: Document, head_seq: int) -> bool:
        done: bool = await self._call("archive.rewrite", run_id=run_id, document=document, head_seq=head_seq)
        return done


class HttpIntegrity:
    """The store behind a server, checked by the server."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls.call

    async def checks(self) -> list[StoreCheck]:
        found: list[StoreCheck] = await self._call("integrity.checks", _LONG_CALL_S)
        return found

    async def refusal(self) -> Refusal | None:
        found: Refusal | None = await self._call("integrity.refusal")
        return found

    async def index_troubles(self, *, deep: bool = False) -> AsyncIterator[IndexTrouble | None]:
        found: list[IndexTrouble] = await self._call("integrity.index_troubles", _LONG_CALL_S, deep=deep)
        for trouble in found:
            yield trouble

    async def recheck(self, trouble: IndexTrouble) -> bool:
        found: bool = await self._call("integrity.recheck", trouble=trouble)
        return found

    async def repair(self, trouble: IndexTrouble) -> bool:
        found: bool = await self._call("integrity.repair", trouble=trouble)
        return found


class HttpTokens:
    """Refuses: the tokens of a server cannot be read or made through it."""

    async def tokens(self) -> list[TokenRecord]:
        raise _own_store()

    async def save_token(self, token: TokenRecord) -> bool:
        raise _own_store()


def _own_store() -> NotAllowedHere:
    return NotAllowedHere("tokens cannot be read or made through a server; name the store behind it with --store")


class HttpSchedules:
    """Schedules, through a server."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls.call

    async def schedules(self) -> list[Schedule]:
        found: list[Schedule] = await self._call("schedules.schedules")
        return found

    async def broken(self) -> list[Broken]:
        found: list[Broken] = await self._call("schedules.broken")
        return found

    async def discard_broken(self, name: str) -> bool:
        done: bool = await self._call("schedules.discard_broken", name=name)
        return done

    async def save_schedule(self, schedule: Schedule) -> bool:
        done: bool = await self._call("schedules.save_schedule", schedule=schedule)
        return done
