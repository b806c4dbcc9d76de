"""Store tokens: authenticates requests by the tokens that the served store keeps.

Invariants: a revoked or expired token is refused within the time between two looks. The last use is written at most
once a minute for each token. A store that does not answer lets in only tokens that it confirmed a short time ago.
"""

from __future__ import annotations

import hmac
import logging

import msgspec
from starlette.requests import Request

from buoy.core.times import StoreTime
from buoy.errors import Problem
from buoy.operations.maintenance.tokens import digest_of
from buoy.ports.tokens import TokenRecord
from buoy.web.auth import Authenticate, Grant, bearer, grant_of
from buoy.web.backend import Backend, OpenedServer

_LOG = logging.getLogger("buoy.web")
# How old the known tokens may be, and how old while the store does not answer.
LOOK_S = 1.0
TRUST_S = 60.0
USED_EVERY_S = 60.0


class StoreTokens:
    """Asks `first`, which knows the tokens of this process, then the tokens of the store."""

    def __init__(self, backend: Backend, first: Authenticate) -> None:
        self._backend = backend
        self._first = first
        self._known: list[TokenRecord] = []
        self._looked_at: float | None = None
        self._now = StoreTime(0.0)

    async def __call__(self, request: Request) -> Grant | None:
        found = await self._first(request)
        token = bearer(request)
        if found is not None or token is None:
            return found
        opened = await self._backend.opened()
        await self._look(opened)
        record = self._record(digest_of(token))
        if record is None or record.refused(self._store_now(opened)):
            return None
        await self._note_use(opened, record)
        return grant_of(record.name, record.scopes)

    def _record(self, digest: str) -> TokenRecord | None:
        found = None
        for each in self._known:
            if hmac.compare_digest(each.digest, digest):
                found = each
        return found

    def _store_now(self, opened: OpenedServer) -> StoreTime:
        assert self._looked_at is not None
        return self._now + (opened.clock.monotonic() - self._looked_at)

    async def _look(self, opened: OpenedServer) -> None:
        age_s = None if self._looked_at is None else opened.clock.monotonic() - self._looked_at
        if age_s is not None and age_s < LOOK_S:
            return
        try:
            known, now = await opened.store.tokens.tokens(), await opened.store.now()
        except Problem as error:
            if age_s is None or age_s > TRUST_S:
                raise
            _LOG.warning("the tokens of the store cannot be read now: %s", error)
            return
        self._known, self._now, self._looked_at = known, now, opened.clock.monotonic()

    async def _note_use(self, opened: OpenedServer, record: TokenRecord) -> None:
        now = self._store_now(opened)
        if record.used_at is not None and now - record.used_at < USED_EVERY_S:
            return
        used = msgspec.structs.replace(record, number=record.number + 1, used_at=now)
        try:
            # False: another server noted it, or the token has just been revoked. The next look tells.
            if await opened.store.tokens.save_token(used):
                self._known = [used if each.id == used.id else each for each in self._known]
        except Problem as error:
            _LOG.warning("the last use of token %s was not noted: %s", record.id, error)
