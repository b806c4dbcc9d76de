"""Tokens: how a person makes, lists and revokes the tokens of a server, in the store that it serves.

Invariants: the call that makes a token returns it once; it is stored nowhere. Lists show neither token nor digest. A
revocation is final.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

import msgspec

from buoy.core.ids import check_name
from buoy.core.limits import TOKENS_MAX
from buoy.core.times import StoreTime
from buoy.engine.client.client import Client
from buoy.errors import BadInput, Unavailable, WrongState
from buoy.ports.tokens import TokenRecord

# read: look. operate: also change runs. admin: also bundles and repairs. runner: the store itself, for workers.
TokenScope: TypeAlias = Literal["read", "operate", "admin", "runner"]
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
_TOKEN_BYTES = 32
_TRIES_MAX = 20


class MadeToken(msgspec.Struct, frozen=True):
    """A new token. It is shown this once."""

    id: str
    name: str
    scopes: tuple[str, ...]
    expires_at: float | None
    token: str


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token as lists show it. Ages are by the store's clock."""

    id: str
    name: str
    scopes: tuple[str, ...]
    state: Literal["valid", "expired", "revoked"]
    age_s: float
    created_by: str
    expires_in_s: float | None
    used_age_s: float | None


class TokenList(msgspec.Struct, frozen=True):
    """All tokens, those that are not valid any more, too."""

    tokens: tuple[TokenView, ...]


def new_token() -> str:
    return f"buoy_{secrets.token_urlsafe(_TOKEN_BYTES)}"


def digest_of(token: str) -> str:
    """The form in which a token is kept. A token is random, so a plain hash cannot be guessed back."""
    return hashlib.sha256(token.encode()).hexdigest()


async def create_token(
    client: Client, name: str, scopes: Iterable[str], *, expires_in_s: float | None = None
) -> MadeToken:
    """Makes a token with those scopes, forever or for a time."""
    chosen = tuple(dict.fromkeys(scopes)) or ("read",)
    unknown = [each for each in chosen if each not in SCOPES]
    if unknown:
        raise BadInput(f"unknown scope {unknown[0]!r}; choose {', '.join(SCOPES)}")
    if expires_in_s is not None and expires_in_s <= 0:
        raise BadInput(f"a token cannot expire in {expires_in_s:g} s; name a time from now on")
    there = await client.store.tokens.tokens()
    if len(there) >= TOKENS_MAX:
        raise WrongState(f"there are {len(there):,} tokens already, which is the limit; revoke some first")
    now, token = await client.store.now(), new_token()
    record = TokenRecord(
        id=client.ids.new("tok-"),
        name=check_name(name, "token"),
        digest=digest_of(token),
        scopes=chosen,
        created_at=now,
        created_by=client.actor,
        expires_at=None if expires_in_s is None else now + expires_in_s,
    )
    if not await client.store.tokens.save_token(record):
        raise Unavailable(f"token {record.id} exists already; try again")
    return MadeToken(
        record.id, record.name, chosen, None if record.expires_at is None else float(record.expires_at), token
    )


async def list_tokens(client: Client) -> TokenList:
    """All of them, without what would let a reader in."""
    now = await client.store.now()
    return TokenList(tuple(_view(each, now) for each in await client.store.tokens.tokens()))


async def revoke_token(client: Client, token_id: str) -> TokenView:
    """Makes a token useless for good. Servers notice within seconds."""
    for _ in range(_TRIES_MAX):
        known = {each.id: each for each in await client.store.tokens.tokens()}
        there = known.get(token_id)
        if there is None:
            raise BadInput(f"there is no token {token_id!r}; `buoy token list` shows the ids")
        now = await client.store.now()
        if there.revoked_at is not None:
            return _view(there, now)
        gone = msgspec.structs.replace(there, number=there.number + 1, revoked_at=now, revoked_by=client.actor)
        if await client.store.tokens.save_token(gone):
            return _view(gone, now)
    raise Unavailable(f"token {token_id} is changed by others all the time; try again")


def _view(record: TokenRecord, now: StoreTime) -> TokenView:
    expired = record.expires_at is not None and record.expires_at <= now
    return TokenView(
        id=record.id,
        name=record.name,
        scopes=record.scopes,
        state="revoked" if record.revoked_at is not None else "expired" if expired else "valid",
        age_s=max(0.0, now - record.created_at),
        created_by=record.created_by,
        expires_in_s=None if record.expires_at is None else record.expires_at - now,
        used_age_s=None if record.used_at is None else max(0.0, now - record.used_at),
    )
