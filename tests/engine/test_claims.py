"""Whose run it is, between the claim of its task and the claim in its log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId, orchestrate_task_id
from buoy.core.log import events as e
from buoy.engine.client.client import Client
from buoy.engine.process.runner import Runner
from buoy.ports.records import Released, RunQuery, Task

from .faults import opened_with_faults
from .harness import bodies_of, log_of, opened, until, until_status
from .scripted_steps import WITNESS, never

RUN = RunId("run")
TASK = Task(orchestrate_task_id(RUN, 1), RUN, "executes", "default")


@pytest.fixture(autouse=True)
def _forget() -> None:
    WITNESS.clear()


@buoy.workflow
async def waits() -> Any:
    return await buoy.wait_signal("go")


@buoy.workflow
async def executes() -> Any:
    return [await buoy.wait_signal("go"), await never("step")]


async def holder_is(client: Client, runner: Runner | None) -> bool:
    return (await client.record("run")).holder == (None if runner is None else runner.id)


async def test_a_run_that_was_given_back_is_not_taken_again_because_of_an_old_list(every_url: str) -> None:
    """The list of what a runner holds is read, then the run is given back, then the list is looked through."""
    async with opened_with_faults(every_url, waits) as (app, store), buoy.connect(every_url) as client:
        await app.start_as("run", waits)
        await until_status(app, "run", "waiting_signal")
        assert app.runner is not None
        listed = store.hold_answer("find_runs")
        app.runner.intake.request_reconcile()
        mine = RunQuery(holder=app.runner.id)
        await until(lambda: any(name == "find_runs" and mine in args for name, args in store.done), "the list")
        app.runner.give_back_resting()
        await until(lambda: holder_is(client, None), "the run to be given back")
        listed.set()
        looks = store.calls["claim_tasks"]
        await until(lambda: store.calls["claim_tasks"] > looks, "the runner to look for work again")
        await app.runner.journal.settled()
        assert len(await bodies_of(client, "run", e.Claimed)) == 1
        assert app.runner.holding() == 0


async def test_a_slow_runner_leaves_a_run_alone_that_another_one_drives(every_url: str) -> None:
    """A runner takes a task and sleeps. Its hold on the task is lost, and a living runner executes the run by now."""
    async with buoy.connect(every_url) as client:
        await client.start_as("run", executes)
        async with opened(every_url, executes) as app:
            await until_status(app, "run", "waiting_signal")
        async with opened_with_faults(every_url, executes) as (slow, store):
            assert slow.runner is not None
            log = store.hold("events")
            await client.signal("run", "go", 1)
            await until(lambda: holder_is(client, slow.runner), "the slow runner to take the task")
            now = slow.runner.clock.now()
            assert await client.store.release(RUN, slow.runner.id, Released(due_at=now, now=now))
            async with opened(every_url, executes) as quick:
                await until(lambda: WITNESS.of("run")["never#1"] == 1, "the other runner to execute the step")
                claims = len(await bodies_of(client, "run", e.Claimed))
                looks = store.calls["claim_tasks"]
                log.set()
                await until(
                    lambda: store.calls["claim_tasks"] > looks + 1, "the slow runner to be through with its task"
                )
                await slow.runner.journal.settled()
                assert len(await bodies_of(client, "run", e.Claimed)) == claims
                assert WITNESS.of("run")["never#1"] == 1
                assert quick.runner is not None
                assert quick.runner.holding() == 1


async def test_a_run_that_nobody_holds_is_taken_without_its_task(every_url: str) -> None:
    """A process that drives one run for a person claims no tasks. It says which holder makes the run free."""
    async with buoy.connect(every_url) as client:
        await client.start_as("run", executes)
        async with opened(every_url, executes) as app:
            await until_status(app, "run", "waiting_signal")
        async with opened(every_url, executes) as other:
            assert other.runner is not None
            await other.runner.intake.take(TASK)
            assert other.runner.holding() == 0
            await other.runner.intake.take(TASK, free_of=(None,))
            assert other.runner.holding() == 1
            await until(lambda: holder_is(client, other.runner), "the run to be held")


async def test_a_run_is_not_taken_without_its_task_once_another_runner_drives_it(every_url: str) -> None:
    async with buoy.connect(every_url) as client:
        await client.start_as("run", executes)
        async with opened(every_url, executes) as app:
            await until_status(app, "run", "waiting_signal")
        async with opened_with_faults(every_url, waits) as (slow, store):
            assert slow.runner is not None
            log = store.hold("events")
            taking = asyncio.create_task(slow.runner.intake.take(TASK, free_of=(None,)))
            async with opened(every_url, executes) as quick:
                await client.signal("run", "go", 1)
                await until(lambda: WITNESS.of("run")["never#1"] == 1, "the other runner to execute the step")
                claims = len(await bodies_of(client, "run", e.Claimed))
                slow.runner.registry.add(executes)
                log.set()
                await taking
                await slow.runner.journal.settled()
                assert len(await bodies_of(client, "run", e.Claimed)) == claims
                assert (slow.runner.holding(), WITNESS.of("run")["never#1"]) == (0, 1)
                assert quick.runner is not None
                assert quick.runner.holding() == 1


async def test_a_runner_that_is_declared_gone_while_it_reads_a_run_drives_nothing(every_url: str) -> None:
    async with buoy.connect(every_url) as client:
        await client.start_as("run", executes)
        async with opened(every_url, executes) as app:
            await until_status(app, "run", "waiting_signal")
        await client.signal("run", "go", 1)
        before = await log_of(client, "run")
        async with opened_with_faults(every_url, waits) as (slow, store):
            assert slow.runner is not None
            slow.runner.registry.add(executes)
            inbox = store.hold("inbox")
            taking = asyncio.create_task(slow.runner.intake.take(TASK, free_of=(None,)))
            await until(lambda: store.calls["inbox"] > 0, "the inbox to be read")
            slow.runner.declared_gone("another process said so")
            await until(lambda: slow.runner is not None and slow.runner.gone is not None, "the runner to know")
            inbox.set()
            await taking
            await slow.runner.journal.settled()
            assert (slow.runner.holding(), WITNESS.of("run")["never#1"]) == (0, 0)
            assert await log_of(client, "run") == before


async def test_a_runner_says_that_it_took_a_run_only_if_its_claim_is_in_the_log(every_url: str) -> None:
    """Two processes drive one run for a person and see it free. The second claim is refused, and says nothing."""
    async with buoy.connect(every_url) as client:
        await client.start_as("run", executes)
        async with opened(every_url, executes) as app:
            await until_status(app, "run", "waiting_signal")
        async with opened_with_faults(every_url, waits) as (slow, store), opened(every_url, waits) as quick:
            assert slow.runner is not None and quick.runner is not None
            said: list[str] = []
            for name, runner in (("slow", slow.runner), ("quick", quick.runner)):
                runner.registry.add(executes)
                runner.intake.on_taken = lambda task, name=name: said.append(name)
            inbox = store.hold("inbox")
            taking = asyncio.create_task(slow.runner.intake.take(TASK, free_of=(None,)))
            await until(lambda: store.calls["inbox"] > 0, "the inbox to be read")
            await quick.runner.intake.take(TASK, free_of=(None,))
            await until(lambda: holder_is(client, quick.runner), "the other runner to hold the run")
            inbox.set()
            await taking
            await until(lambda: slow.runner is not None and slow.runner.holding() == 0, "the slow runner to let go")
            await until(lambda: bool(said), "the word of the runner that took it")
            assert said == ["quick"]
