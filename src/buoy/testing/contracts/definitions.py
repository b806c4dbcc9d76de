"""The contract of definitions: kept under their hash for good; and which runners are given runs of specs."""

from __future__ import annotations

import asyncio

from buoy.ports.records import Wants
from buoy.testing.contracts.harness import Contract, StoreHarness, register, with_harness

VERSION = "0123456789abcdef0123456789abcdef"


class DefinitionContract(Contract):
    @with_harness
    async def test_a_definition_is_read_back_byte_by_byte_by_others(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        data = b'{"name": "nightly", "steps": ["\xc3\xa9"]}' * 5_000
        await store.define(VERSION, data)
        assert await other.definition(VERSION) == data

    @with_harness
    async def test_an_unknown_definition_is_nothing(self, harness: StoreHarness) -> None:
        store = await harness.open()
        assert await store.definition(VERSION) is None

    @with_harness
    async def test_defining_it_again_changes_nothing(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await asyncio.gather(*(each.define(VERSION, b"{}") for each in (store, other, store)))
        await other.define(VERSION, b"{}")
        assert await store.definition(VERSION) == b"{}"

    @with_harness
    async def test_a_runner_of_specs_gets_them_without_knowing_their_names(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "runner-a")
        await harness.author("run-1", workflow="spec:nightly").create(store)
        await harness.author("run-2", workflow="checkout").create(store)
        assert await store.claim_tasks(runner, Wants(workflows=()), 10) == []
        taken = await store.claim_tasks(runner, Wants(workflows=(), specs=True), 10)
        assert [task.run_id for task in taken] == ["run-1"]

    @with_harness
    async def test_specs_that_a_runner_cannot_run_are_left_to_others(self, harness: StoreHarness) -> None:
        store = await harness.open()
        unable, able = await register(store, "runner-a"), await register(store, "runner-b")
        await harness.author("run-1", workflow="spec:nightly").create(store)
        await harness.author("run-2", workflow="spec:hourly").create(store)
        some = await store.claim_tasks(unable, Wants(workflows=(), specs=True, excluded_specs=("spec:nightly",)), 10)
        rest = await store.claim_tasks(able, Wants(workflows=("spec:nightly",)), 10)
        assert [task.run_id for task in (*some, *rest)] == ["run-2", "run-1"]
