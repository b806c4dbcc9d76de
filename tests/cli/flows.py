"""Workflows for the tests of the command line. Each step writes into a witness file what was really executed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import buoy

# How often a held step looks whether it is still held.
LOOK_S = 0.01


@dataclass
class Parcel:
    item: str
    count: int = 1


def note(witness: str, line: str) -> None:
    with Path(witness).open("a") as file:
        file.write(line + "\n")


@buoy.step
async def part(number: int, witness: str, work_s: float) -> int:
    note(witness, f"begin {number}")
    buoy.progress(number, 10, note=f"part {number}")
    # As long as a test holds it: whatever the test does then happens in the middle of this part.
    while Path(f"{witness}.hold-{number}").exists():
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(work_s)
    note(witness, f"done {number}")
    return number


@buoy.step
def stuck(witness: str) -> None:
    note(witness, "stuck")
    time.sleep(3600)


@buoy.step(retries=3, backoff="1h")
async def unlucky() -> int:
    raise ValueError("no luck\nand more")


@buoy.workflow
async def parts(witness: str, count: int = 4, work_s: float = 0.0) -> list[int]:
    return [await part(number, witness, work_s) for number in range(count)]


@buoy.workflow
async def ship(parcel: Parcel) -> str:
    if not await buoy.ask("Ship it?", kind="confirm"):
        raise buoy.Cancelled("declined")
    return f"{parcel.count} {parcel.item}"


@buoy.workflow
async def several() -> list[object]:
    asked = (
        buoy.ask("Which colour?", kind="choose", options=["red", "blue"]),
        buoy.ask("Which sizes?", kind="choose_many", options=["S", "M", "L"]),
        buoy.ask("Any words?"),
        buoy.ask("Where to?", kind="form", schema={"type": "object", "required": ["town"]}),
    )
    return list(await asyncio.gather(*asked))


@buoy.workflow
async def signalled() -> object:
    return await buoy.wait_signal("packed", timeout="3d")


@buoy.workflow(name="divide")
def division(number: int) -> int:
    print("this goes to standard output")
    return 10 // number


@buoy.workflow
async def hopeful() -> int:
    return await unlucky()


@buoy.workflow
async def sleeper() -> None:
    await buoy.sleep("1h")


@buoy.workflow
def hanging(witness: str) -> None:
    stuck(witness)


@buoy.step
async def unreserve(item: str) -> None:
    pass


@buoy.step(compensate=unreserve)
async def reserve(item: str) -> str:
    return item


@buoy.step
async def price(item: str) -> int:
    prices: dict[str, int] = {}
    return prices[item]


@buoy.workflow
async def risky() -> int:
    return await price(await reserve("lamp"))


@buoy.workflow
async def wrapped() -> int:
    return await risky()
