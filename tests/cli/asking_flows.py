"""Workflows that ask, for the tests on a terminal."""

from __future__ import annotations

import asyncio

import buoy


@buoy.workflow
async def asked_then_signalled() -> list[object]:
    shipped = await buoy.ask("Ship it?", kind="confirm")
    await buoy.wait_signal("packed")
    return [shipped, await buoy.ask("Last words?")]


@buoy.workflow
async def impatient() -> str:
    try:
        async with asyncio.timeout(2):
            await buoy.ask("Quick?", kind="confirm")
        return "in time"
    except TimeoutError:
        await buoy.wait_signal("packed")
        return "too late"


@buoy.workflow
async def chosen_then_signalled() -> str:
    chosen = await buoy.ask("What now?", kind="choose", options=["load", "skip"])
    await buoy.wait_signal("packed")
    return str(chosen)


@buoy.workflow
async def wordy(title: str) -> object:
    async with asyncio.timeout(600):
        return await buoy.ask(title)
