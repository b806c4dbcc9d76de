"""The workflows whose requests are counted, and gates at which their steps wait."""

from __future__ import annotations

import asyncio

import buoy


class Gates:
    """Steps that wait until they are let through."""

    def __init__(self) -> None:
        self.began: dict[int, asyncio.Event] = {}
        self.open: dict[int, asyncio.Event] = {}

    def close(self, *numbers: int) -> None:
        self.began = {number: asyncio.Event() for number in numbers}
        self.open = {number: asyncio.Event() for number in numbers}

    async def passed(self, number: int) -> None:
        if number in self.open:
            self.began[number].set()
            await self.open[number].wait()


gates = Gates()


@buoy.step
async def same(number: int) -> int:
    await gates.passed(number)
    return number


@buoy.step(queue="far")
async def far(number: int) -> int:
    return number


@buoy.workflow
async def walk(number: int) -> int:
    return sum([await same(each) for each in range(1, number + 1)])


@buoy.workflow
async def walk_far(number: int) -> int:
    return sum([await far(each) for each in range(number)])


@buoy.workflow
async def waiting() -> object:
    return await buoy.wait_signal("go")
