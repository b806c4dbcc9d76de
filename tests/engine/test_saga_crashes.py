"""Sagas cut off at every point, with retries after what was undone: seen from the bank, which knows only keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import buoy
from buoy.core.log import events as e
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.client.client import Client

from .harness import cuts, log_of, opened, outcome_of, plant, renamed, state_of, store_at, until, until_status

CHARGED: list[str] = []
REFUNDED: list[str] = []
MENDED: set[str] = set()
# Of a step that was undone and then asked for again: the undoing raises it, and so does the person.
EPOCH = 2


@pytest.fixture(autouse=True)
def _forget() -> None:
    CHARGED.clear()
    REFUNDED.clear()
    MENDED.clear()


@buoy.step
async def refund(order: str, result: str) -> None:
    REFUNDED.append(buoy.idempotency_key())


@buoy.step(compensate=refund)
async def charge(order: str) -> str:
    CHARGED.append(buoy.idempotency_key())
    return f"receipt {order}"


@buoy.step
async def ship() -> str:
    if "ship" not in MENDED:
        raise ValueError("no lorry")
    return "shipped"


@buoy.step
async def broken_refund(order: str) -> None:
    if "refund" not in MENDED:
        raise RuntimeError("the bank is closed")
    REFUNDED.append(buoy.idempotency_key())


@buoy.step(compensate=broken_refund)
async def sticky(order: str) -> str:
    CHARGED.append(buoy.idempotency_key())
    return "stuck"


@buoy.workflow
async def sale() -> str:
    await charge("a")
    await charge("b")
    return await ship()


@buoy.workflow
def sync_sale() -> str:
    charge.call("a").result()
    charge.call("b").result()
    return str(ship.call().result())


@buoy.workflow
async def called_off() -> str:
    await charge("a")
    await buoy.wait_signal("never")
    return "?"


@buoy.workflow
async def stuck_sale() -> str:
    await sticky("a")
    await charge("b")
    return await ship()


def known_to_the_bank(cut: Sequence[e.Event], *, unknown_too: bool) -> tuple[set[str], set[str]]:
    """What had its effect before the crash: all that is recorded, and perhaps what was under way."""
    keys = {event.body.leaf: event.body.key for event in cut if isinstance(event.body, e.StepStarted)}
    charges = {
        event.body.key if isinstance(event.body, e.StepStarted) else keys[event.body.leaf]
        for event in cut
        if isinstance(event.body, (e.StepStarted, e.StepCompleted) if unknown_too else e.StepCompleted)
    }
    refunds = {
        event.body.key
        for event in cut
        if isinstance(event.body, e.CompensationStarted)
        and (unknown_too or any(_undone(each, event.body.leaf) for each in cut))
    }
    return {key for key in charges if "charge#" in key}, refunds


def _undone(event: e.Event, leaf: str) -> bool:
    return isinstance(event.body, e.CompensationCompleted) and event.body.leaf == leaf


async def whole(url: str, workflow: Workflow[..., Any], *, cancel: bool = False) -> list[e.Event]:
    async with opened(url, workflow) as app:
        run = await app.start_as("whole", workflow)
        if cancel:
            await until_status(app, "whole", "waiting_signal")
            await run.cancel("changed my mind")
        await outcome_of(app, run)
        return await log_of(app, "whole")


async def planted(url: str, cut: Sequence[e.Event], name: str) -> None:
    async with store_at(url) as store:
        await plant(store, name, renamed(cut, "whole", name))


@pytest.mark.parametrize("unknown_too", [False, True])
@pytest.mark.parametrize("workflow", [sale, sync_sale, called_off], ids=["async", "sync", "cancelled"])
async def test_a_saga_cut_off_anywhere_leaves_nothing_charged(
    workflow: Workflow[..., Any], unknown_too: bool, any_url: str
) -> None:
    log = await whole(any_url, workflow, cancel=workflow is called_off)
    ended = log[-1].type
    # Before the cancellation of the last one there is nothing to end it.
    begun = next(event.seq for event in log if event.type in ("step_failed", "cancel_requested"))
    for number, cut in enumerate(cuts(log)):
        if workflow is called_off and len(cut) < begun:
            continue
        name = f"cut{number}"
        charges, refunds = (
            {key.replace("whole", name, 1) for key in keys} for keys in known_to_the_bank(cut, unknown_too=unknown_too)
        )
        CHARGED.clear()
        REFUNDED.clear()
        await planted(any_url, cut, name)
        async with opened(any_url, workflow) as app:
            await outcome_of(app, await app.get(name))
            after = await log_of(app, name)
            assert (await state_of(app, name)).anomalies == []
        assert after[-1].type == ended
        assert {f"{key}/compensation" for key in charges | set(CHARGED)} == refunds | set(REFUNDED)
        done = {event.body.leaf for event in cut if isinstance(event.body, e.CompensationCompleted)}
        assert not {key for key in REFUNDED if key.split("/")[1] in done}, "what was undone is not undone again"


@pytest.mark.parametrize("workflow", [sale, sync_sale], ids=["async", "sync"])
async def test_a_retry_after_the_undoing_cut_off_anywhere_charges_everything_once(
    workflow: Workflow[..., Any], any_url: str
) -> None:
    async with opened(any_url, workflow) as app:
        run = await app.start_as("whole", workflow)
        await outcome_of(app, run)
        MENDED.add("ship")
        await app.retry("whole")
        assert await outcome_of(app, run) == ("completed", "shipped")
        log = await log_of(app, "whole")
    expected = {f"whole/charge#{number}/{epoch}" for number in (1, 2) for epoch in (0, EPOCH)}
    assert set(CHARGED) == expected
    assert set(REFUNDED) == {f"whole/charge#{number}/0/compensation" for number in (1, 2)}
    branch = next(event.seq for event in log if isinstance(event.body, e.BranchCreated))
    for number, cut in enumerate(each for each in cuts(log) if len(each) >= branch):
        name = f"cut{number}"
        CHARGED.clear()
        REFUNDED.clear()
        await planted(any_url, cut, name)
        async with opened(any_url, workflow) as app:
            assert await outcome_of(app, await app.get(name)) == ("completed", "shipped")
        assert REFUNDED == []
        assert set(CHARGED) <= {f"{name}/charge#{place}/{EPOCH}" for place in (1, 2)}


async def test_a_retry_that_fails_again_undoes_only_what_it_did_itself(url: str) -> None:
    async with opened(url, sale) as app:
        run = await app.start_as("whole", sale)
        await outcome_of(app, run)
        await app.retry("whole")
        await until(lambda: _ended_twice(app), "the second end")
        assert (await outcome_of(app, run))[0] == "failed"
    assert sorted(f"{key}/compensation" for key in CHARGED) == sorted(REFUNDED)
    assert len(set(CHARGED)) == 4


async def _ended_twice(app: Client) -> bool:
    return sum(event.type == "workflow_failed" for event in await log_of(app, "whole")) == 2


async def test_after_a_failed_compensation_a_retry_is_a_second_charge_and_says_so_before(url: str) -> None:
    """How far the compensation came is unknown, so the step runs again under a new key; a person decides."""
    async with opened(url, stuck_sale) as app:
        run = await app.start_as("whole", stuck_sale)
        assert (await outcome_of(app, run))[0] == "failed"
        plan = await app.plan_retry("whole")
        assert plan.never_undone == ("sticky#1",)
        assert set(plan.again) == {"sticky#1", "charge#1", "ship#1"}
        MENDED.add("ship")
        await app.retry("whole")
        assert await outcome_of(app, run) == ("completed", "shipped")
    sticky_keys = [key for key in CHARGED if "sticky" in key]
    assert len(sticky_keys) == len(set(sticky_keys)) == 2
