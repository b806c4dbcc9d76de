"""Steps for the tests of the engine: each body says in the witness that it ran, and runs when the script lets it.

Names, not times, script the order in which bodies end. `after(name, other)` ends after the step with the name `other`
has ended, in this process or in the log that the run was planted with.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from typing import NamedTuple

import buoy


class Ran(NamedTuple):
    run: str
    leaf: str
    attempt: int


class Witness:
    """Which bodies ran, outside of every store; and who waits for whom."""

    def __init__(self) -> None:
        self.ran: list[Ran] = []
        self.ended: dict[str, set[str]] = defaultdict(set)
        self._waiting: list[tuple[str, str, asyncio.Future[None]]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        info = buoy.info()
        with self._lock:
            self.ran.append(Ran(info.run_id, str(info.leaf), info.attempt or 0))

    def end(self, name: str) -> None:
        """On the loop's thread only."""
        self.let_pass(buoy.info().run_id, {name})

    def let_pass(self, run: str, names: set[str]) -> None:
        self.ended[run] |= names
        for place in [each for each in self._waiting if each[0] == run and each[1] in names]:
            self._waiting.remove(place)
            if not place[2].done():
                place[2].set_result(None)

    async def ended_before(self, name: str) -> None:
        run = buoy.info().run_id
        if name in self.ended[run]:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((run, name, waiter))
        await waiter

    def of(self, run: str) -> Counter[str]:
        """How often each leaf's body ran."""
        return Counter(each.leaf for each in self.ran if each.run == run)

    def attempts(self, run: str, leaf: str) -> list[int]:
        return [each.attempt for each in self.ran if each.run == run and each.leaf == leaf]

    def clear(self) -> None:
        self.ran.clear()
        self.ended.clear()
        self._waiting.clear()


WITNESS = Witness()


@buoy.step
async def work(name: str, value: int = 0) -> int:
    """Gives its value back."""
    WITNESS.start()
    WITNESS.end(name)
    return value


@buoy.step
async def after(name: str, other: str, value: int = 0) -> int:
    """Ends after the step called `other`."""
    WITNESS.start()
    await WITNESS.ended_before(other)
    WITNESS.end(name)
    return value


@buoy.step
async def never(name: str) -> int:
    """Does not end by itself."""
    WITNESS.start()
    await asyncio.get_running_loop().create_future()
    return 0


@buoy.step
async def fails(name: str) -> int:
    WITNESS.start()
    WITNESS.end(name)
    raise ValueError(f"{name} is wrong")


@buoy.step(retries=2, backoff="1ms")
async def flaky(name: str, good_from: int) -> int:
    """Succeeds from its `good_from`-th attempt on."""
    WITNESS.start()
    attempt = buoy.info().attempt or 0
    if attempt < good_from:
        raise ConnectionError(f"attempt {attempt}")
    WITNESS.end(name)
    return attempt


@buoy.step
def threaded(name: str, value: int = 0) -> int:
    """A sync step: its body runs in a thread."""
    WITNESS.start()
    return value
