"""Tokens in objects: one numbered record each."""

from __future__ import annotations

from buoy.core.ids import check_run_id
from buoy.ports.tokens import TokenRecord
from buoy.stores.objects.bucket import Bucket
from buoy.stores.objects.index.entries import each
from buoy.stores.objects.numbered import NumberedObjects

TOKENS = "tokens/"


class ObjectTokens:
    """The tokens of one object store."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._records = NumberedObjects(bucket, TokenRecord)

    async def tokens(self) -> list[TokenRecord]:
        found = await each(await self._bucket.list(TOKENS), self._records.get)
        return [one for one in found if one is not None]

    async def save_token(self, token: TokenRecord) -> bool:
        return await self._records.save(f"{TOKENS}{check_run_id(token.id)}.json", token)
