"""The contract of tokens: of two who change a token one wins, and a revocation is not undone."""

from __future__ import annotations

import asyncio

import msgspec

from buoy.core.times import StoreTime
from buoy.ports.tokens import TokenRecord
from buoy.testing.contracts.harness import Contract, StoreHarness, with_harness


def token(name: str = "tok-a", number: int = 1, **more: object) -> TokenRecord:
    made = TokenRecord(
        id=name, name="deploy", digest="00ff", scopes=("read",), created_at=StoreTime(1.0), number=number
    )
    return msgspec.structs.replace(made, **more)


class TokenContract(Contract):
    @with_harness
    async def test_tokens_are_read_back_the_same_by_every_process(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        assert await store.tokens.tokens() == []
        assert await store.tokens.save_token(token("tok-b", expires_at=StoreTime(9.0)))
        assert await store.tokens.save_token(token("tok-a"))
        for each in (store, other, await harness.open()):
            assert await each.tokens.tokens() == [token("tok-a"), token("tok-b", expires_at=StoreTime(9.0))]

    @with_harness
    async def test_a_late_note_of_use_does_not_undo_a_revocation(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        assert not await store.tokens.save_token(token(number=2))
        assert await store.tokens.save_token(token())
        assert not await other.tokens.save_token(token(name="tok-a"))
        assert await other.tokens.save_token(token(number=2, revoked_at=StoreTime(5.0)))
        assert not await store.tokens.save_token(token(number=2, used_at=StoreTime(6.0)))
        assert [each.revoked_at for each in await store.tokens.tokens()] == [StoreTime(5.0)]

    @with_harness
    async def test_of_many_who_change_a_token_one_wins(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(4)
        await stores[0].tokens.save_token(token())
        drafts = [token(number=2, used_at=StoreTime(float(place))) for place in range(4)]
        won = await asyncio.gather(
            *(store.tokens.save_token(draft) for store, draft in zip(stores, drafts, strict=True))
        )
        assert sorted(won) == [False] * 3 + [True]
        assert await stores[0].tokens.tokens() == [drafts[won.index(True)]]
