"""Worker pool: keeps a number of worker processes alive until a person stops them.

Invariants: a worker that ends without being asked is started again. The pause before doubles with each crash in a row
and is bounded. Until a first worker is ready, a worker that refuses to start (bad input, an unusable store) ends the
pool with its exit code. A stop reaches every worker once; the pool ends after its last worker.
Absent on purpose: the runs. Each worker is a runner of its own, and the others take over what a crashed one held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from buoy.core.limits import RESTART_FIRST_S, RESTART_MAX_S, RESTART_RESET_S, RESTARTS_UNTIL_IDLE_MAX
from buoy.errors import Unavailable
from buoy.ports.host import Clock
from buoy.ports.processes import ChildProcess, ChildProcesses

PoolNews = Literal["spawned", "ready", "ended", "restarting", "given_up", "refused"]


class PoolEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one worker. `code`: as of a process, negative for a signal; None: it was never started."""

    what: PoolNews
    process: int
    pid: int | None = None
    runner: str | None = None
    code: int | None = None
    crashes: int = 0
    wait_s: float = 0.0
    detail: str | None = None


class PoolEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the pool ended: the exit code of each worker that ran, and what decided."""

    codes: tuple[int | None, ...]
    # The exit code with which the first worker refused to start.
    refused: int | None = None
    given_up: int = 0
    restarts: int = 0


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`until_idle`: a worker that ends with 0 has nothing left to do. `refusals`: exit codes that one worker has for
    what no restart can repair."""

    processes: int
    until_idle: bool = False
    refusals: tuple[int, ...] = ()
    first_s: float = RESTART_FIRST_S
    longest_s: float = RESTART_MAX_S
    reset_s: float = RESTART_RESET_S
    crashes_max: int = RESTARTS_UNTIL_IDLE_MAX


class WorkerPool:
    """The parent of some workers."""

    def __init__(
        self,
        children: ChildProcesses,
        clock: Clock,
        words: Sequence[str],
        options: PoolOptions,
        on_event: Callable[[PoolEvent], None],
    ) -> None:
        self._children = children
        self._clock = clock
        self._words = tuple(words)
        self._options = options
        self._report = on_event
        self._alive: dict[int, ChildProcess] = {}
        self._signal: str | None = None
        self._stopping = asyncio.Event()
        self._was_ready = False
        self._refused: int | None = None
        self._given_up = 0
        self._restarts = 0

    async def run(self) -> PoolEnd:
        """Until all workers have ended for good."""
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep(number + 1)) for number in range(self._options.processes)]
        return PoolEnd(
            codes=tuple(each.result() for each in keepers),
            refused=self._refused,
            given_up=self._given_up,
            restarts=self._restarts,
        )

    def stop(self, signal: str) -> None:
        """Asks every worker for a graceful stop, and starts none any more."""
        if self._signal is None:
            self._signal = signal
            self._stopping.set()
            for each in self._alive.values():
                each.ask_to_stop(signal)

    def end_at_once(self, signal: str) -> None:
        """Ends every worker as a second signal does."""
        self.stop(signal)
        for each in self._alive.values():
            each.end_at_once(signal)

    async def _keep(self, number: int) -> int | None:
        """Keeps one worker alive. Its last exit code; None if none runs at the end."""
        crashes = 0
        code: int | None = None
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            code, detail = await self._once(number)
            if self._stopping.is_set() or self._is_last(number, code):
                break
            crashes = 1 if self._clock.monotonic() - began >= self._options.reset_s else crashes + 1
            if self._options.until_idle and crashes > self._options.crashes_max:
                self._given_up += 1
                self._report(PoolEvent(what="given_up", process=number, code=code, crashes=crashes))
                break
            await self._pause(number, code, crashes, detail)
            code = None  # a stop during the pause finds no process
        return code

    async def _once(self, number: int) -> tuple[int | None, str | None]:
        """One life of one worker: its exit code, or why there was none."""
        try:
            child = await self._children.start(self._words, number, lambda runner: self._ready(number, runner))
        except Unavailable as error:
            return None, str(error)
        self._alive[number] = child
        self._report(PoolEvent(what="spawned", process=number, pid=child.pid))
        if self._signal is not None:
            child.ask_to_stop(self._signal)  # asked for while the process was being started
        code = await child.wait()
        del self._alive[number]
        self._report(PoolEvent(what="ended", process=number, pid=child.pid, code=code))
        return code, None

    def _ready(self, number: int, runner: str) -> None:
        self._was_ready = True
        child = self._alive.get(number)
        pid = None if child is None else child.pid
        self._report(PoolEvent(what="ready", process=number, pid=pid, runner=runner))

    def _is_last(self, number: int, code: int | None) -> bool:
        if code in self._options.refusals and not self._was_ready:
            if self._refused is None:
                self._refused = code
                self._report(PoolEvent(what="refused", process=number, code=code))
            self.stop("REFUSED")
            return True
        return code == 0 and self._options.until_idle

    async def _pause(self, number: int, code: int | None, crashes: int, detail: str | None) -> None:
        """Waits before the next start; a stop ends the wait."""
        # The exponent is bounded: a float overflows at two to the power of 1,024.
        wait_s = min(self._options.longest_s, self._options.first_s * 2.0 ** min(crashes - 1, 20))
        self._restarts += 1
        self._report(
            PoolEvent(what="restarting", process=number, code=code, crashes=crashes, wait_s=wait_s, detail=detail)
        )
        try:
            async with asyncio.timeout(wait_s):
                await self._stopping.wait()
        except TimeoutError:
            return
