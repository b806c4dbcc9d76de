"""Workflows for the crash test: right ones, and wrong ones that it has to find."""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import time
import uuid
from typing import Any

import buoy

CHARGES: list[str] = []
BLOCKED_S = 0.1


@buoy.step
async def reserve(item: str) -> str:
    return f"{item} for {buoy.idempotency_key()}"


@buoy.step(retries=2, backoff="10m", backoff_max="1h")
async def flaky(item: str) -> int:
    about = buoy.info()
    if about.attempt == 1:
        raise ConnectionError("not yet")
    return int(about.attempt or 0)


@buoy.step
def label(item: str) -> str:
    buoy.idempotency_key()
    return f"label of {item}"


@buoy.step
async def refund(item: str) -> None:
    buoy.idempotency_key()


@buoy.step(compensate=refund)
async def pay(item: str) -> str:
    return buoy.idempotency_key()


@buoy.workflow
async def parcel(item: str) -> str:
    await buoy.sleep("1d")
    return await label.call(item)


@buoy.workflow
async def checkout(item: str) -> dict[str, Any]:
    """Everything that a workflow can do, done right."""
    place = await reserve(item)
    paid, tries = await asyncio.gather(pay(item), flaky(item))
    if not await buoy.ask("Ship it?", kind="confirm"):
        raise buoy.Cancelled("declined")
    try:
        async with asyncio.timeout(3600):
            await buoy.sleep("2h")
    except TimeoutError:
        place += ", late"
    packed = await buoy.wait_signal("packed", timeout="3d")
    at = buoy.now().isoformat()
    return {"place": place, "paid": paid, "tries": tries, "packed": packed, "at": at, "parcel": await parcel(item)}


ANSWERS = [{"on": "Ship it?", "answer": True, "after": "2d"}, {"on": "signal packed", "payload": 7, "after": "1h"}]


@buoy.workflow
def sync_checkout(item: str) -> list[Any]:
    first = label(item)
    buoy.sleep("30d")
    return [first, *buoy.gather(label.call("a"), reserve.call("b")), buoy.ask("Ship it?", kind="confirm")]


@buoy.workflow
async def broken_payment(item: str) -> str:
    await pay(item)
    raise ValueError("out of stock")


@buoy.workflow
async def loop(n: int = 0) -> int:
    await reserve(str(n))
    if n < 2:
        buoy.continue_as_new(n + 1)
    return n


# ---- wrong ones


@buoy.step
async def charge(item: str) -> str:
    CHARGES.append(item)
    return "paid"


@buoy.workflow
async def double_charge(item: str = "lamp") -> str:
    return await charge(item)


@buoy.workflow
async def by_the_clock() -> str:
    if datetime.datetime.now().year > 2000:
        return await reserve("lamp")
    return "nothing"


@buoy.workflow
async def by_the_stopwatch() -> str:
    began = time.perf_counter_ns()
    await reserve("lamp")
    return await reserve(str(began))


@buoy.workflow
async def by_chance() -> str:
    for _ in range(3):
        await (reserve("lamp") if random.random() < 0.5 else label.call("lamp"))
    return "done"


@buoy.workflow
async def by_uuid() -> str:
    return await reserve(str(uuid.uuid4()))


@buoy.workflow
async def by_set_order() -> str:
    for each in {"alpha", "beta", "gamma", "delta", "epsilon"}:
        await reserve(each)
    return "done"


@buoy.workflow
async def by_hash() -> str:
    await reserve(str(hash("lamp")))
    return await reserve("lamp")


@buoy.workflow
def sync_by_chance() -> str:
    label(str(random.random()))
    buoy.sleep("1d")
    return label("b")


@buoy.workflow
async def swallows() -> str:
    try:
        await buoy.sleep("1d")
    except asyncio.CancelledError:
        print("never mind")
    return await reserve("lamp")


@buoy.workflow
async def swallows_all() -> str:
    while True:
        try:
            await buoy.sleep("1d")
            return "done"
        except BaseException:
            continue


@buoy.workflow
def sync_swallows() -> str:
    try:
        buoy.sleep("1d")
    except BaseException as error:
        print("never mind", error)
    return "done"


@buoy.workflow
async def cleans_up() -> str:
    """Catches the cancellation as one should."""
    try:
        await buoy.sleep("1d")
    except asyncio.CancelledError:
        await reserve("clean")
        raise
    return "done"


UNLUCKY: list[int] = []


@buoy.step
async def unlucky() -> int:
    """Fails at every third execution, as a service that is overloaded now and then."""
    UNLUCKY.append(1)
    if len(UNLUCKY) % 3 == 2:
        raise ConnectionError("overloaded")
    return buoy.info().attempt


@buoy.workflow
async def calls_an_unlucky_step() -> int:
    return await unlucky()


@buoy.workflow
async def forgets_to_await() -> str:
    reserve("lamp")
    buoy.sleep("1d")
    later = reserve("later")
    await buoy.sleep("1d")
    return await later


@buoy.workflow
def sync_forgets() -> str:
    label.call("lamp")
    first = label.call("first")
    buoy.sleep("1d")
    return str(first.result())


@buoy.workflow
async def blocks() -> str:
    for _ in range(2):
        time.sleep(BLOCKED_S)
    return await reserve("lamp")


@buoy.workflow
def sync_blocks() -> str:
    time.sleep(BLOCKED_S)
    return label("lamp")


@buoy.step
async def opaque() -> object:
    buoy.idempotency_key()
    return object()


@buoy.workflow
async def not_json() -> str:
    await opaque()
    return "done"


ITEM = "lamp"


@buoy.workflow
async def by_a_patched_global() -> str:
    await reserve(ITEM)
    return await reserve("lamp")


@buoy.step
async def trace(path: str) -> None:
    buoy.idempotency_key()
    with open(path, "a") as file:
        print(os.getpid(), file=file)


@buoy.workflow
async def leaves_a_trace(path: str) -> None:
    await trace(path)
    await trace(path)


SEEN: list[int] = []


@buoy.workflow
async def by_a_global() -> int:
    SEEN.append(1)
    await reserve("lamp")
    return len(SEEN)


@buoy.step
async def careless_refund(item: str) -> None:
    CHARGES.append(f"-{item}")


@buoy.step(compensate=careless_refund)
async def careful_pay(item: str) -> str:
    return buoy.idempotency_key()


@buoy.workflow
async def refunds_twice() -> None:
    await careful_pay("lamp")
    await buoy.sleep("1d")


@buoy.workflow
async def does_io() -> str:
    await asyncio.open_connection("localhost", 1)
    return "never"


@buoy.workflow
async def asks() -> Any:
    return await buoy.ask("Ship it?", kind="confirm")


@buoy.workflow(recovery="fail")
async def fails_on_crash() -> str:
    return await reserve("lamp")
