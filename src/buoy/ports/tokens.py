"""The tokens port: who may ask a server, kept in the store that the server serves.

Invariants: a store keeps the digest of a token, never the token. A record is written only over the number before it, so
that a late writer cannot undo a revocation. A revoked token stays known. Servers do not pass this port on.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from buoy.core.times import StoreTime


class TokenRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One token as it is stored. `number` counts its changes; times are the store's."""

    id: str
    name: str
    digest: str
    scopes: tuple[str, ...]
    created_at: StoreTime
    created_by: str = ""
    number: int = 1
    expires_at: StoreTime | None = None
    revoked_at: StoreTime | None = None
    revoked_by: str | None = None
    # Written from time to time, so that a busy token costs no write for each request.
    used_at: StoreTime | None = None

    def refused(self, now: StoreTime) -> bool:
        """Whether it is revoked, or expired at that time."""
        return self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= now)


class TokenStore(Protocol):
    """The tokens of one store."""

    async def tokens(self) -> list[TokenRecord]:
        """All of them by id, also revoked and expired ones."""
        ...

    async def save_token(self, token: TokenRecord) -> bool:
        """Writes a record over the one with the number before, or a new one with number 1. False: it has changed."""
        ...
