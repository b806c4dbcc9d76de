"""Tokens in PostgreSQL: one row each, written only over the number that the writer saw."""

from __future__ import annotations

import msgspec

from buoy.ports.tokens import TokenRecord
from buoy.stores.postgres.connection import Connection
from buoy.stores.postgres.lanes import ReadLane, WriteLane
from buoy.stores.unreadable import decoded

_TOKENS = msgspec.json.Decoder(TokenRecord)


class PostgresTokens:
    """The tokens of one PostgreSQL store, on its lanes."""

    def __init__(self, writer: WriteLane, reader: ReadLane) -> None:
        self._writer = writer
        self._reader = reader

    async def tokens(self) -> list[TokenRecord]:
        rows = await self._reader.read(lambda c: c.rows("tokens"))
        return [decoded(_TOKENS.decode, body, f"tokens, row {name}") for name, body in rows]

    async def save_token(self, token: TokenRecord) -> bool:
        values = {"id": token.id, "number": token.number, "body": msgspec.json.encode(token)}

        def save(connection: Connection) -> bool:
            with connection.transaction():
                return connection.count("add_token" if token.number == 1 else "change_token", values) == 1

        return await self._writer.write(save)
