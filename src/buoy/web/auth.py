"""Auth: who asks, and what that caller may do.

Invariants: tokens are kept as hashes and compared in constant time. A request without a known token is refused before
its body is read. A token is never logged, and no answer contains one.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec
from starlette.requests import Request

from buoy.errors import BadInput
from buoy.operations.maintenance.tokens import SCOPES, TokenScope, digest_of, new_token

Scope: TypeAlias = TokenScope
# What a scope includes besides itself.
_INCLUDES: dict[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "admin": frozenset({"read", "operate", "admin", "runner"}),
    "runner": frozenset({"read", "operate", "runner"}),
}
_BEARER = "bearer "


class Grant(msgspec.Struct, frozen=True):
    """What a caller may do, and the name under which its changes are audited."""

    name: str
    scopes: frozenset[str]

    def allows(self, scope: str) -> bool:
        return scope in self.scopes


# Maps a request to its grant; None: refused. Users of `buoy.asgi` may bring one of their own.
Authenticate: TypeAlias = Callable[[Request], Awaitable[Grant | None]]
ANYONE = Grant("anyone", frozenset(SCOPES))


def grant_of(name: str, scopes: Iterable[str]) -> Grant:
    """A grant with all that these scopes include."""
    found: set[str] = set()
    for scope in scopes:
        if scope not in _INCLUDES:
            raise BadInput(f"unknown scope {scope!r}; choose {', '.join(SCOPES)}")
        found |= _INCLUDES[scope]
    return Grant(name, frozenset(found))


def bearer(request: Request) -> str | None:
    """The token in the header of a request; None: it has none, or several: a proxy may have checked another one."""
    given = request.headers.getlist("authorization")
    header = given[0] if len(given) == 1 else ""
    if header[: len(_BEARER)].lower() == _BEARER:
        return header[len(_BEARER) :].strip()
    return None


class KnownTokens:
    """The tokens of one server, by digest."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def add(self, token: str, grant: Grant) -> None:
        self._grants[digest_of(token)] = grant

    async def __call__(self, request: Request) -> Grant | None:
        token = bearer(request)
        if token is None:
            return None
        asked, found = digest_of(token), None
        for digest, grant in self._grants.items():
            if hmac.compare_digest(digest, asked):
                found = grant
        return found


async def allow_anyone(_: Request) -> Grant | None:
    """For a unix socket: the file system says who may connect."""
    return ANYONE


def read_or_make_token(path: Path) -> str:
    """The token in that file, which only its owner may read; a new one if there is no such file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_token(path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return read_or_make_token(path)
    token = new_token()
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token


def _read_token(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise BadInput(f"the token file {path} can be read by other users; run `chmod 600 {path}`")
    token = path.read_text().strip()
    if not token:
        raise BadInput(f"the token file {path} is empty; remove it, and start the server again")
    return token
