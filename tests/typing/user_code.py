"""What a user writes, for type checkers. A line that must be refused ends in `# E`; nothing here is executed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_type

import buoy


@dataclass
class Order:
    item: str
    cents: int


@dataclass
class Receipt:
    id: str


@buoy.step
async def charge(order: Order) -> Receipt:
    return Receipt(order.item)


@buoy.step(retries=3, timeout="30s")
async def refund(receipt: Receipt, *, reason: str = "") -> int:
    return 5


@buoy.step
def pack(order: Order, boxes: int = 1) -> list[str]:
    return [order.item] * boxes


@buoy.step(retries=1)
def label(text: str) -> bytes:
    return text.encode()


@buoy.step
async def nothing() -> None: ...


@buoy.workflow
async def checkout(order: Order, express: bool = False) -> str:
    receipt = await charge(order)
    assert_type(receipt, Receipt)
    assert_type(await refund(receipt, reason="no"), int)
    assert_type(await refund.call(receipt), int)
    assert_type(await pack.call(order, boxes=2), list[str])
    one, two = await asyncio.gather(charge(order), pack.call(order))
    assert_type(one, Receipt)
    assert_type(two, list[str])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(charge(order))
    assert_type(task.result(), Receipt)
    assert_type(await asyncio.wait_for(charge(order), 5), Receipt)
    assert_type(await asyncio.create_task(refund(receipt)), int)
    assert_type(await asyncio.gather(*[charge(order) for _ in range(3)]), list[Receipt])
    await charge("A-7")  # E
    await charge()  # E
    await charge(order, 5)  # E
    await refund(receipt, reason=5)  # E
    await refund(receipt, "no")  # E
    await pack.call(order, boxes="2")  # E
    await charge.call(5)  # E
    await pack(order)  # E
    receipt.nothing  # E
    wrong: int = await charge(order)  # E
    print(wrong, charge(order).id)  # E
    return receipt.id


@buoy.workflow(name="packing", recovery="restart")
def packing(order: Order) -> list[str]:
    assert_type(pack(order), list[str])
    assert_type(label("x"), bytes)
    assert_type(pack.call(order).result(), list[str])
    pack("lamp")  # E
    label(5)  # E
    label.call(5)  # E
    pack(order).upper()  # E
    return pack(order, 2)


@buoy.workflow
async def endless() -> None:
    await nothing()
    await buoy.start_child(checkout, Order("lamp", 5), express=True)
    await buoy.start_child(checkout, "lamp")  # E
    await buoy.start_child(charge, Order("lamp", 5))  # E
    await checkout("lamp")  # E
    assert_type(await checkout(Order("lamp", 5)), str)
    one, two = await asyncio.gather(checkout(Order("lamp", 5)), charge(Order("lamp", 5)))
    assert_type(one, str)
    assert_type(two, Receipt)
    assert_type(await asyncio.wait_for(quick(5), 5), list[int])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(quick(1))
    assert_type(task.result(), list[int])
    number: int = await checkout(Order("lamp", 5))  # E
    print(number, checkout(Order("lamp", 5)).upper())  # E
    await packing(Order("lamp", 5))


@buoy.workflow(name="quick")
async def quick(n: int) -> list[int]:
    return [n]


async def main() -> None:
    async with buoy.open("sqlite:///x.db", workflows=[checkout, packing]) as app:
        run = await app.start(checkout, Order("lamp", 5))
        assert_type(await run.result(), str)
        other = await app.start_as("p-1", packing, Order("lamp", 5))
        assert_type(await other.result(), list[str])
        await app.start(checkout, Order("lamp", 5), express=True)
        assert_type(await (await app.start(endless)).result(), None)
        await app.start(checkout, "lamp")  # E
        await app.start(checkout)  # E
        await app.start(checkout, Order("lamp", 5), express="yes")  # E
        await app.start(checkout, Order("lamp", 5), fast=True)  # E
        await app.start_as("x", packing, 5)  # E
        await app.start_as(5, packing, Order("lamp", 5))  # E
        await app.start(charge, Order("lamp", 5))  # E
        number: int = await run.result()  # E
        await run.signal(5)  # E
        print(number)
    buoy.open(workflows=[5])  # E


async def bring_back(app: buoy.Client, run: buoy.Run[str]) -> None:
    swept = await buoy.sweep(app, registry={"checkout": checkout, "packing": "fail"}, stale_after="2m", stack=None)
    assert_type(swept, buoy.Swept)
    assert_type((swept.restarted, swept.failed, swept.skipped), tuple[int, int, int])
    assert_type(await buoy.sweep(resolve_policy=lambda document: document.policy), buoy.Swept)
    assert_type((await buoy.reconcile("sqlite:///x.db", env="test")).replayed, int)
    assert_type((await buoy.recover(run, stream_open=True)).error, str | None)
    assert_type((await buoy.recover("order-7", app)).needed, bool)

    async def requeue(found: buoy.Found) -> None:
        print(found.run_id, found.action)

    assert_type(await buoy.scan(app, report=requeue, task_checker=lambda task: task.queue == "gpu"), buoy.Scan)
    await buoy.sweep(5)  # E
    await buoy.sweep(app, registry={"checkout": 5})  # E
    await buoy.sweep(app, stack=5)  # E
    await buoy.scan(app, report=5)  # E
    await buoy.recover(app, run)  # E


@buoy.step(retries="3")  # E
async def mistaken() -> None: ...


@buoy.workflow(recovery="perhaps")  # E
async def undecided() -> None: ...
