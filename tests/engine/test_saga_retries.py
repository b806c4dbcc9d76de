"""Attempts of compensations: counted and spaced by the log, whatever happens to the processes in between."""

from __future__ import annotations

import pytest

import buoy
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.transitions import compensation_leaf
from buoy.engine.authoring.definitions import Registry
from buoy.wiring.local_worker import host_worker

from .harness import (
    PATIENT_STOP,
    bodies_of,
    cuts,
    earlier,
    log_of,
    opened,
    plant,
    renamed,
    state_of,
    store_at,
    until_event,
    until_status,
)
from .scripted_steps import WITNESS

UNDO = "charge#1!compensation"


@pytest.fixture(autouse=True)
def _forget() -> None:
    WITNESS.clear()


@buoy.step(retries=2, backoff="1ms")
async def refund(order: str) -> None:
    WITNESS.start()
    if (buoy.info().attempt or 0) < 3:
        raise ConnectionError("the bank is closed")


@buoy.step(compensate=refund)
async def charge(order: str) -> str:
    return order


@buoy.step(retries=1, backoff="1h", backoff_max="1h")
async def refund_later(order: str) -> None:
    WITNESS.start()
    if (buoy.info().attempt or 0) < 2:
        raise ConnectionError("the bank is closed")


@buoy.step(compensate=refund_later, name="charge")
async def charge_slowly(order: str) -> str:
    return order


@buoy.workflow
async def sale() -> None:
    await charge("a")
    raise ValueError("no lorry")


@buoy.workflow
async def patient_sale() -> None:
    await charge_slowly("a")
    raise ValueError("no lorry")


async def test_a_compensation_goes_on_with_its_attempts_after_a_crash_at_any_point(any_url: str) -> None:
    async with opened(any_url, sale) as app:
        await app.start_as("whole", sale)
        await until_status(app, "whole", "failed")
        assert WITNESS.attempts("whole", UNDO) == [1, 2, 3]
        assert [each.attempt for each in await bodies_of(app, "whole", e.CompensationStarted)] == [1, 2, 3]
        log = await log_of(app, "whole")
    parts = {f"cut-{count}": renamed(cut, "whole", f"cut-{count}") for count, cut in enumerate(cuts(log))}
    async with store_at(any_url) as store:
        for name, events in parts.items():
            await plant(store, name, events)
    async with opened(any_url, sale) as app:
        for name, events in parts.items():
            await until_status(app, name, "failed")
            begun = [event.body.attempt for event in events if isinstance(event.body, e.CompensationStarted)]
            failed = [event for event in events if isinstance(event.body, e.CompensationRetryScheduled)]
            first = max([*begun, 1]) if len(failed) < len(begun) else len(begun) + 1
            assert WITNESS.attempts(name, UNDO) == list(range(first, 4)), [event.type for event in events]


async def test_the_back_off_of_a_compensation_is_not_begun_again_by_a_crash(any_url: str) -> None:
    async with opened(any_url, patient_sale) as app:
        await app.start_as("whole", patient_sale)
        log = (await until_event(app, "whole", "compensation_retry_scheduled"))[:]
        due_at = (await state_of(app, "whole")).open[compensation_leaf(LeafId("charge#1"))].due_at
    async with store_at(any_url) as store:
        await plant(store, "waits", renamed(log, "whole", "waits"))
        await plant(store, "is-due", earlier(renamed(log, "whole", "is-due"), 7200.0))
    async with opened(any_url, patient_sale) as app:
        await until_status(app, "is-due", "failed")
        assert WITNESS.attempts("is-due", UNDO) == [2]
        await until_event(app, "waits", "claimed", 2)
        assert (await state_of(app, "waits")).open[compensation_leaf(LeafId("charge#1"))].due_at == due_at
        assert WITNESS.attempts("waits", UNDO) == []


async def test_a_back_off_of_a_compensation_does_not_hold_up_a_graceful_stop(any_url: str) -> None:
    async with store_at(any_url) as store:
        registry = Registry()
        registry.add(patient_sale)
        worker = host_worker(store, registry, role="worker", queues=("default",), options=PATIENT_STOP)
        await worker.start()
        try:
            app = worker.client()
            await app.start_as("run", patient_sale)
            await until_event(app, "run", "compensation_retry_scheduled")
        finally:
            left = await worker.stop()
        assert left == 0
        assert (await app.record("run")).document.status == "interrupted"
