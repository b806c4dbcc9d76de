"""Tokens in objects: one each, by create-if-absent and compare-and-swap. The number makes every body its own."""

from __future__ import annotations

import msgspec

from buoy.core.ids import check_run_id
from buoy.errors import Unavailable
from buoy.ports.tokens import TokenRecord
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.index import each
from buoy.stores.unreadable import decoded

TOKENS = "tokens/"
_TOKENS = msgspec.json.Decoder(TokenRecord)


class ObjectTokens:
    """The tokens of one object store."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def tokens(self) -> list[TokenRecord]:
        found = await each(await self._bucket.list(TOKENS), self._get)
        return [one[0] for one in found if one is not None]

    async def _get(self, key: str) -> tuple[TokenRecord, str] | None:
        found = await self._bucket.get(key)
        return None if found is None else (decoded(_TOKENS.decode, found[0], key), found[1])

    async def save_token(self, token: TokenRecord) -> bool:
        key = f"{TOKENS}{check_run_id(token.id)}.json"
        data = msgspec.json.encode(token)
        there = await self._get(key)
        if (0 if there is None else there[0].number) != token.number - 1:
            return False
        try:
            await (self._bucket.create(key, data) if there is None else self._bucket.replace(key, data, there[1]))
        except (Exists, Changed):
            return False
        except Unavailable:
            now = await self._get(key)
            if now is None or now[0].number < token.number:
                raise
            return now[0] == token
        return True
