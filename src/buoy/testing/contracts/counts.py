"""The contract of counts and of scopes: runs by their status, by stack and by env."""

from __future__ import annotations

from typing import Any

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.ports.records import Ended, Held, Released, RunQuery
from buoy.ports.store import Store
from buoy.testing.contracts.harness import Contract, StoreHarness, claimed, register, with_harness
from buoy.testing.contracts.lists import names

FAILED = e.WorkflowFailed(error=e.ErrorInfo(type="E", message="no"))


async def _ended(store: Store, harness: StoreHarness, name: str, how: e.Body, **created: Any) -> None:
    author = await harness.author(name, **created).create(store, Held(await register(store, "r1")))
    await author.append(store, claimed("r1"), how, task=Ended())


class CountContract(Contract):
    @with_harness
    async def test_runs_are_counted_by_their_status(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        assert await store.counts() == {}
        for number in range(3):
            await _ended(store, harness, f"done-{number}", e.WorkflowCompleted())
        await _ended(store, harness, "failed", FAILED)
        runner = await register(store, "r1")
        await harness.author("new").create(store, Released(due_at=harness.clock.now(), now=harness.clock.now()))
        held = await harness.author("held").create(store, Held(runner))
        await held.append(store, claimed("r1"))
        assert await other.counts() == {"completed": 3, "failed": 1, "pending": 1, "running": 1}
        assert await other.counts(RunQuery(statuses=("failed", "running"))) == {"failed": 1, "running": 1}
        assert await other.counts(RunQuery(statuses=("cancelled",))) == {}
        assert await other.counts(RunQuery(holder=runner)) == {"running": 1}
        assert await other.counts(RunQuery(text="done")) == {"completed": 3}

    @with_harness
    async def test_a_run_that_ended_and_still_owes_something_is_counted_once(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner = await register(store, "r1")
        author = await harness.author("owes").create(store, Held(runner))
        await author.append(store, claimed("r1"), e.WorkflowCompleted(), task=Held(runner))
        assert await other.counts() == {"completed": 1}

    @with_harness
    async def test_counts_agree_with_lists(self, harness: StoreHarness) -> None:
        store = await harness.open()
        for number in range(12):
            harness.clock.advance(1.0)
            how = (e.WorkflowCompleted(), FAILED, None)[number % 3]
            name, workflow = f"run-{number}", "order" if number % 2 else "ship"
            if how is None:
                await harness.author(name, workflow=workflow).create(store, Released(due_at=None, now=0.0))
            else:
                await _ended(store, harness, name, how, workflow=workflow)
        for query in (
            RunQuery(workflow="order"),
            RunQuery(workflow="ship", statuses=("completed",)),
            RunQuery(created_before=harness.clock.now() - 4.0),
            RunQuery(created_from=harness.clock.now() - 4.0, statuses=("pending", "failed")),
        ):
            found = await store.counts(query)
            assert sum(found.values()) == len(await names(store, query)) > 0, query

    @with_harness
    async def test_an_env_is_listed_alone_and_a_stack_with_those_that_have_none(self, harness: StoreHarness) -> None:
        store = await harness.open()
        for stack in (None, "a", "b"):
            for env in (None, "test"):
                name = f"{stack}-{env}"
                await harness.author(name, stack=stack, env=env).create(
                    store, Released(due_at=None, now=harness.clock.now())
                )
                await _ended(store, harness, f"{name}-over", e.WorkflowCompleted(), stack=stack, env=env)

        async def found(**scope: object) -> list[str]:
            pending = sorted(await names(store, RunQuery(statuses=("pending",), **scope)))  # type: ignore[arg-type]
            over = sorted(await names(store, RunQuery(statuses=("completed",), **scope)))  # type: ignore[arg-type]
            assert over == [f"{name}-over" for name in pending]
            number = len(pending)
            counted = await store.counts(RunQuery(**scope))  # type: ignore[arg-type]
            assert counted == ({"pending": number, "completed": number} if number else {})
            return pending

        assert len(await found()) == 6
        assert await found(env=None) == ["None-None", "a-None", "b-None"]
        assert await found(env="test") == ["None-test", "a-test", "b-test"]
        assert await found(env="prod") == []
        assert await found(stack="a") == ["None-None", "None-test", "a-None", "a-test"]
        assert await found(stack="a", env="test") == ["None-test", "a-test"]
        assert await found(stack="c", env=None) == ["None-None"]

    @with_harness
    async def test_pages_of_an_env_hold_every_run_of_it_once(self, harness: StoreHarness) -> None:
        store = await harness.open()
        for number in range(10):
            harness.clock.advance(1.0)
            await harness.author(f"run-{number}", env="test" if number % 2 else None).create(store)
        assert await names(store, RunQuery(env="test")) == [f"run-{number}" for number in (9, 7, 5, 3, 1)]
        page = await store.find_runs(RunQuery(env="test"), limit=5)
        assert (len(page.runs), page.cursor) == (5, None)
        assert page.runs[0].document.run_id == RunId("run-9")
