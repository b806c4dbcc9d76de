"""Functions that specs of the tests call. Each says outside of every store that it ran."""

from __future__ import annotations

from typing import Any

import buoy

RAN: list[tuple[str, str, int]] = []


def note() -> None:
    info = buoy.info()
    RAN.append((info.run_id, str(info.leaf), info.attempt or 0))


def times(run: str, leaf: str) -> int:
    return sum((each[0], each[1]) == (run, leaf) for each in RAN)


async def value(x: int = 0) -> int:
    note()
    return x


async def anything(x: Any) -> Any:
    return x


def threaded(x: int) -> dict[str, int]:
    note()
    return {"x": x}


async def fails(why: str = "it is wrong") -> None:
    note()
    raise ValueError(why)


async def flaky(good_from: int) -> int:
    note()
    attempt = buoy.info().attempt or 0
    if attempt < good_from:
        raise ConnectionError(f"attempt {attempt}")
    return attempt


@buoy.step(retries=3, backoff="1ms")
async def own_retries() -> int:
    note()
    if (buoy.info().attempt or 0) < 2:
        raise ConnectionError("once")
    return 7


async def make(path: str, really: bool = True) -> str:
    note()
    if really:
        with open(path, "w") as file:
            file.write("made")
    return path
