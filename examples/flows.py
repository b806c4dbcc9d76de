"""An order in six steps. Each step writes into a witness file when it begins and when it is done. The file shows what
was really executed, and how often.

    buoy run examples/flows.py:order --input '{"item": "lamp", "witness": "witness.txt"}' --id order-1
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import buoy

WORK_S = 0.4


@buoy.step
async def reserve(item: str, witness: str) -> str:
    await work("reserve", witness)
    return f"{item} reserved"


@buoy.step
async def charge(item: str, witness: str) -> str:
    await work("charge", witness)
    return f"{item} paid"


@buoy.step
async def pack(item: str, witness: str) -> str:
    await work("pack", witness)
    return f"{item} packed"


@buoy.step
async def label(item: str, witness: str) -> str:
    await work("label", witness)
    return f"{item} labelled"


@buoy.step
async def ship(item: str, witness: str) -> str:
    await work("ship", witness)
    return f"{item} shipped"


@buoy.step
async def notify(item: str, witness: str) -> str:
    await work("notify", witness)
    return f"customer told about {item}"


STEPS = ("reserve", "charge", "pack", "label", "ship", "notify")


@buoy.workflow
async def order(item: str, witness: str) -> list[str]:
    return [
        await reserve(item, witness),
        await charge(item, witness),
        await pack(item, witness),
        await label(item, witness),
        await ship(item, witness),
        await notify(item, witness),
    ]


async def work(name: str, witness: str) -> None:
    """Something that takes its time and has an effect outside of Buoy."""
    write(witness, f"begin {name}")
    print(f"    process {os.getpid()}: {name:<8} begins", flush=True)
    await asyncio.sleep(WORK_S)
    write(witness, f"done {name}")
    print(f"    process {os.getpid()}: {name:<8} done", flush=True)


def write(witness: str, line: str) -> None:
    with Path(witness).open("a") as file:
        file.write(line + "\n")
