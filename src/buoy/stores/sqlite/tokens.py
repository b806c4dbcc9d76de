"""Tokens in SQLite: one row each, written only over the number that the writer saw."""

from __future__ import annotations

import sqlite3

import msgspec

from buoy.ports.tokens import TokenRecord
from buoy.stores.sqlite.lanes import ReadLane, WriteLane
from buoy.stores.unreadable import decoded

_TOKENS = msgspec.json.Decoder(TokenRecord)

# A file of an earlier schema that this user may only read has no such table.
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tokens'"
_ALL = "SELECT id, body FROM tokens ORDER BY id"
_ADD = "INSERT INTO tokens (id, number, body) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"
_CHANGE = "UPDATE tokens SET number = ?2, body = ?3 WHERE id = ?1 AND number = ?2 - 1"


class SqliteTokens:
    """The tokens of one SQLite store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane) -> None:
        self._writer = writer
        self._reader = reader

    async def tokens(self) -> list[TokenRecord]:
        rows = await self._reader.read(_rows, quick=True)
        return [decoded(_TOKENS.decode, body, f"tokens, row {name}") for name, body in rows]

    async def save_token(self, token: TokenRecord) -> bool:
        values = (token.id, token.number, msgspec.json.encode(token))

        def work(connection: sqlite3.Connection) -> bool:
            if token.number == 1:
                return connection.execute(_ADD, values).rowcount == 1
            return connection.execute(_CHANGE, values).rowcount == 1

        return await self._writer.write(work)


def _rows(connection: sqlite3.Connection) -> list[tuple[str, bytes]]:
    if connection.execute(_HAS_TABLE).fetchone() is None:
        return []
    return connection.execute(_ALL).fetchall()
