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
        async with asyncio.timeout(5):
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


@buoy.workflow
async def filled() -> object:
    schema = {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean", "title": "Approve the answer?"},
            "size": {"enum": ["small", "large"]},
            "count": {"type": "integer", "minimum": 3, "default": 1},
            "note": {"type": "string"},
        },
        "required": ["approved", "size"],
    }
    return await buoy.ask("Review", kind="form", schema=schema)
