"""The contract of tasks: one holder each, fair queues, and only runners that can do the work."""

from __future__ import annotations

import asyncio

from buoy.core.ids import RunId, RunnerId, orchestrate_task_id
from buoy.core.log import events as e
from buoy.ports.records import Ended, Held, Released, Wants
from buoy.testing.contracts.harness import ANY, Contract, StoreHarness, claim, claimed, register, with_harness

RUN = RunId("run-1")
CLAIMERS = 8
TASKS = 40


class TaskContract(Contract):
    @with_harness
    async def test_a_new_run_goes_to_whoever_comes_first(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        now = harness.clock.now()
        await harness.author(RUN).create(store, Released(due_at=now, now=now, cause="created"))
        (task,) = await other.claim_tasks(await register(other, "r1"), ANY, 10)
        assert (task.id, task.run_id, task.workflow) == (orchestrate_task_id(RUN, 1), RUN, "order")
        assert [task.queue, task.due_at, task.cause, task.evidence] == ["default", now, "created", {}]
        record = await store.run(RUN)
        assert record is not None and record.holder == "r1"

    @with_harness
    async def test_a_run_that_its_creator_holds_goes_to_nobody_else(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        await harness.author(RUN).create(store, Held(await register(store, "r1")))
        assert await claim(other, await register(other, "r2")) == []

    @with_harness
    async def test_a_task_has_one_holder_among_many_claimers(self, harness: StoreHarness) -> None:
        stores = await harness.open_many(CLAIMERS)
        runners = [await register(store, f"r{number}") for number, store in enumerate(stores)]
        for number in range(TASKS):
            await harness.author(f"run-{number}").create(
                stores[0], Released(due_at=harness.clock.now(), now=harness.clock.now())
            )

        async def take(number: int) -> list[str]:
            mine: list[str] = []
            while some := await claim(stores[number], runners[number], limit=3):
                mine += some
                await asyncio.sleep(0)
            return mine

        taken = await asyncio.gather(*map(take, range(CLAIMERS)))
        # A claimer that lost every race of one look may have gone home early; the rest is still there to take.
        rest = await claim(stores[0], runners[0])
        assert sorted([*rest, *(each for some in taken for each in some)]) == sorted(f"run-{n}" for n in range(TASKS))
        for runner, some in zip(runners, taken, strict=True):
            for run_id in some:
                record = await stores[0].run(RunId(run_id))
                assert record is not None and record.holder == runner

    @with_harness
    async def test_tasks_are_handed_out_in_order_of_their_due_time(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        for number, delay_s in enumerate((3000.0, 1000.0, 5000.0, 2000.0, 4000.0)):
            await harness.author(f"run-{number}").create(
                store, Released(due_at=harness.clock.now() + delay_s, now=harness.clock.now())
            )
        harness.clock.advance(4500.0)
        assert await claim(store, runner, limit=2) == ["run-1", "run-3"]
        assert await claim(store, runner) == ["run-0", "run-4"]

    @with_harness
    async def test_a_full_queue_does_not_starve_another(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        for number in range(20):
            await harness.author(f"full-{number}", queue="full").create(
                store, Released(due_at=harness.clock.now(), now=harness.clock.now())
            )
        harness.clock.advance(1.0)
        for number in range(2):
            await harness.author(f"rare-{number}", queue="rare").create(
                store, Released(due_at=harness.clock.now(), now=harness.clock.now())
            )
        got = await claim(store, runner, Wants(queues=("full", "rare")), limit=6)
        assert len(got) == 6
        assert {"rare-0", "rare-1"} <= set(got)

    @with_harness
    async def test_a_runner_gets_only_what_it_wants(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        due = Released(due_at=harness.clock.now(), now=harness.clock.now())
        await harness.author("queue", queue="fast").create(store, due)
        await harness.author("workflow", workflow="refund").create(store, due)
        await harness.author("stack", stack="blue").create(store, due)
        await harness.author("env", env="test").create(store, due)
        for wants in (
            Wants(queues=("slow",)),
            Wants(workflows=("order",), stack="red"),
            Wants(workflows=()),
            Wants(env="live"),
        ):
            assert await claim(store, runner, wants) == [], wants
        assert await claim(store, runner, Wants(queues=("fast",))) == ["queue"]
        assert await claim(store, runner, Wants(workflows=("refund", "other"))) == ["workflow"]
        assert await claim(store, runner, Wants(stack="blue")) == ["stack"]
        assert await claim(store, runner, Wants(env="test")) == ["env"]

    @with_harness
    async def test_a_runner_without_a_stack_takes_tasks_of_every_stack(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await harness.author(RUN, stack="blue").create(
            store, Released(due_at=harness.clock.now(), now=harness.clock.now())
        )
        assert await claim(store, await register(store, "r1"), Wants(stack=None)) == [RUN]

    @with_harness
    async def test_a_runner_without_an_env_gets_no_task_of_one(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        await harness.author("with", env="test").create(
            store, Released(due_at=harness.clock.now(), now=harness.clock.now())
        )
        await harness.author("without").create(store, Released(due_at=harness.clock.now(), now=harness.clock.now()))
        assert await claim(store, runner, Wants(env=None)) == ["without"]

    @with_harness
    async def test_a_runner_that_never_registered_gets_nothing(self, harness: StoreHarness) -> None:
        store = await harness.open()
        await harness.author(RUN).create(store, Released(due_at=harness.clock.now(), now=harness.clock.now()))
        assert await claim(store, RunnerId("ghost")) == []
        assert await claim(store, await register(store, "r1")) == [RUN]

    @with_harness
    async def test_a_task_can_be_given_back_without_an_event(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        runner, stranger = await register(store, "r1"), await register(other, "r2")
        await harness.author(RUN).create(store, Held(runner))
        later = Released(due_at=harness.clock.now() + 5.0, now=harness.clock.now(), cause="interrupted")
        assert not await other.release(RUN, stranger, later)
        assert await store.release(RUN, runner, later)
        assert not await store.release(RUN, runner, later)
        assert await claim(other, stranger) == []
        harness.clock.advance(5.0)
        (task,) = await other.claim_tasks(stranger, ANY, 1)
        assert task.cause == "interrupted"
        assert len(await store.events(RUN)) == 1

    @with_harness
    async def test_nobody_can_release_a_run_that_is_not_there(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        assert not await store.release(RunId("nobody"), runner, Released(due_at=None, now=0.0))

    @with_harness
    async def test_taking_a_run_over_in_the_log_takes_its_task_too(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        old, new = await register(store, "old"), await register(other, "new")
        await harness.author(RUN).create(store, Held(old))
        await (await harness.reader_of(other, RUN)).append(other, claimed("new"), task=Held(new))
        record = await store.run(RUN)
        assert record is not None and record.holder == new
        assert not await store.release(RUN, old, Released(due_at=harness.clock.now(), now=harness.clock.now()))

    @with_harness
    async def test_a_run_that_goes_on_after_its_end_has_a_task_again(self, harness: StoreHarness) -> None:
        store = await harness.open()
        runner = await register(store, "r1")
        author = await harness.author(RUN).create(store, Held(runner))
        await author.append(store, claimed("r1"), e.WorkflowCompleted(), task=Ended())
        record = await store.run(RUN)
        assert record is not None and record.holder is None
        await author.append(store, claimed("r1"), task=Held(runner))
        record = await store.run(RUN)
        assert record is not None and record.holder == runner
        assert await store.release(RUN, runner, Released(due_at=harness.clock.now(), now=harness.clock.now()))
        assert await claim(store, runner) == [RUN]

    @with_harness
    async def test_a_run_may_end_and_keep_its_task_until_its_duties_are_done(self, harness: StoreHarness) -> None:
        store, other = await harness.open_many(2)
        first, second = await register(store, "r1"), await register(store, "r2")
        author = await harness.author(RUN).create(store, Held(first))
        await author.append(store, claimed("r1"), e.WorkflowCompleted())
        assert await claim(other, second) == []
        await other.declare_dead(first, "proven dead", cause="taken_over", evidence={})
        assert await claim(other, second) == [RUN]
        assert await other.release(RUN, second, Ended())
        assert not await store.release(RUN, second, Ended())
        assert await claim(store, second) == []
        assert await store.orphans(10) == []
        record = await store.run(RUN)
        assert record is not None and record.holder is None and record.document.ended
