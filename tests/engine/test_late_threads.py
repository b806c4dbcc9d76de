"""Threads of sync steps that act for longer than anything waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.run import step_attempt
from buoy.wiring.local_worker import host_worker
from buoy.wiring.worker import Worker
from tests.patience import LOOK_S, PATIENCE_S, turns, wait_until

from .harness import PATIENT_STOP, bodies_of, store_at, types_of, until, until_event, until_status

LET_GO, TIMED_OUT = threading.Event(), threading.Event()
ACTING: list[str] = []
SEEN: list[tuple[str, bool]] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    for event in (LET_GO, TIMED_OUT):
        event.clear()
    ACTING.clear()
    SEEN.clear()
    yield
    LET_GO.set()


def act(name: str) -> None:
    """Acts until the test lets it go, whatever is asked of it."""
    ACTING.append(name)
    wait_until(buoy.abandoned, "the limit")
    TIMED_OUT.set()
    LET_GO.wait(PATIENCE_S)
    ACTING.remove(name)


@buoy.step
async def refund() -> None:
    SEEN.append(("refund", bool(ACTING)))


@buoy.step(compensate=refund)
async def charge() -> None: ...


# Long enough for a thread to begin on a machine that others keep busy: 20 ms were not.
@buoy.step(timeout="1s")
def stuck() -> None:
    act("stuck")


@buoy.step
def patient() -> None:
    act("patient")


@buoy.step(timeout="20ms")
def quick() -> None:
    SEEN.append(("quick", bool(ACTING)))


@buoy.workflow
async def sale() -> None:
    await charge()
    await stuck.call()


@buoy.workflow
async def gives_up() -> Any:
    try:
        async with asyncio.timeout(1.0):  # as above
            await patient.call()
    except TimeoutError:
        return await buoy.wait_signal("go")


@buoy.workflow
async def one_after_the_other() -> str:
    first = asyncio.ensure_future(patient.call())
    await asyncio.sleep(0)  # it is called first
    try:
        await quick.call()
    except buoy.StepFailed as error:
        await buoy.wait_signal("go")
        first.cancel()
        return str(error)
    return "?"


@asynccontextmanager
async def working(url: str, workflow: Workflow[..., Any], threads: int = 4) -> AsyncIterator[Worker]:
    registry = Registry()
    registry.add(workflow)
    options = buoy.RunnerOptions(stop_grace_s=PATIENT_STOP.stop_grace_s, step_threads=threads)
    async with store_at(url) as store:
        worker = host_worker(store, registry, role="worker", queues=("default",), options=options)
        await worker.start()
        try:
            yield worker
        finally:
            LET_GO.set()
            await worker.stop()


async def test_nothing_is_undone_while_the_thread_of_a_step_that_timed_out_acts(any_url: str) -> None:
    async with working(any_url, sale) as worker:
        app = worker.client()
        await app.start_as("run", sale)
        await until(TIMED_OUT.is_set)
        await turns()
        assert "step_failed" not in await types_of(app, "run")
        assert "still acts" in worker.runner.progress[RunId("run")].note
        LET_GO.set()
        await until_status(app, "run", "failed")
        assert SEEN == [("refund", False)]
        failed = (await bodies_of(app, "run", e.StepFailed))[0]
        assert failed.error.message == "step stuck took longer than its timeout of 1 s"


async def test_a_thread_that_does_not_end_is_named_by_the_log_and_by_why(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_attempt, "THREAD_END_MAX_S", 0.02)
    async with working(any_url, sale) as worker:
        app = worker.client()
        await app.start_as("run", sale)
        await until_status(app, "run", "failed")
        failed = (await bodies_of(app, "run", e.StepFailed))[0]
        assert failed.error.facts == {"thread": "buoy-step-1"}
        assert "its thread buoy-step-1 still acts 0.02 s later" in failed.error.message
        assert SEEN == [("refund", True)]
        assert "buoy-step-1 still acts" in str((await app.record("run")).document.error)


async def test_a_graceful_stop_waits_for_the_thread_of_a_run_that_has_ended(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_attempt, "THREAD_END_MAX_S", 0.02)
    async with working(any_url, sale) as worker:
        await worker.client().start_as("run", sale)
        await until_status(worker.client(), "run", "failed")
        stop = asyncio.create_task(worker.stop())
        await until(lambda: worker.runner.holding() == 0)
        await asyncio.sleep(LOOK_S)
        assert ACTING == ["stuck"]
        assert not stop.done()
        LET_GO.set()
        assert await stop == 0


async def test_after_its_grace_a_stop_names_the_threads_that_still_act(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_attempt, "THREAD_END_MAX_S", 0.02)
    async with working(any_url, sale) as worker:
        await worker.client().start_as("run", sale)
        await until_status(worker.client(), "run", "failed")
        assert await worker.stop(grace_s=0.02) == 0
        noted = worker.runner.troubles()[1]
        assert noted == "step stuck#1 of run run still acts in thread buoy-step-1; it ends with this process"


async def test_a_run_is_not_given_back_while_the_thread_of_a_step_that_it_gave_up_acts(any_url: str) -> None:
    async with working(any_url, gives_up) as worker:
        app = worker.client()
        await app.start_as("run", gives_up)
        await until_event(app, "run", "signal_waited")
        stop = asyncio.create_task(worker.stop())
        await until(lambda: worker.runner.stopping.is_set())
        await asyncio.sleep(LOOK_S)
        assert ACTING == ["patient"]
        assert (await app.record("run")).holder == worker.runner.id
        LET_GO.set()
        assert await stop == 0
        assert (await app.record("run")).holder is None


async def test_a_step_that_found_no_thread_in_time_fails_and_never_runs(any_url: str) -> None:
    async with working(any_url, one_after_the_other, threads=1) as worker:
        app = worker.client()
        await app.start_as("run", one_after_the_other)
        await until_event(app, "run", "signal_waited")
        failed = (await bodies_of(app, "run", e.StepFailed))[0]
        assert failed.error.message == "step quick found no free thread within its timeout of 0.02 s"
        await app.signal("run", "go")
        await until_status(app, "run", "completed")
        LET_GO.set()
        await until(lambda: not ACTING)
        pool = worker.runner.step_pool
        assert pool is not None
        await until(lambda: pool._busy == 0)
        assert SEEN == []
