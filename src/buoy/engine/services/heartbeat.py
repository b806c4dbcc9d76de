"""Heartbeat: a runner's sign of life, one write for all that it holds.

Invariants: heartbeats have a connection and a thread of their own. So neither a busy loop nor a half transaction of the
worker can silence or spoil them. A refused heartbeat is final: the runner was declared dead and stops. A runner that
may be declared dead by silence fences itself: its timer runs from the sending of its last confirmed heartbeat. Neither
a call that hangs nor a store that cannot be opened delays that timer. An attempt that fails or takes too long costs its
connection: the next attempt opens another one. A process that ends may overtake the thread: after `stop` nothing
depends on the thread's remaining work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import BEAT_ATTEMPT_S, BEAT_S, SELF_FENCE_AFTER_S
from buoy.core.times import StoreTime
from buoy.errors import Unavailable
from buoy.ports.host import Clock
from buoy.ports.records import Beat, LoopHeld, Progress, SweepHealth
from buoy.ports.store import Store

# Progress travels with the beats, so a change of it is worth a beat of its own, but not more often than this.
_PROGRESS_S = 1.0


class Beating(Protocol):
    """The runner, as its beats see it."""

    id: RunnerId
    clock: Clock
    progress: dict[RunId, Progress]

    def holding(self) -> int: ...

    def troubles(self) -> tuple[int, str | None]: ...

    def sweep_health(self) -> SweepHealth | None: ...

    def declared_gone(self, why: str) -> None: ...


class Heartbeat:
    """The loop that beats. `stop` may be called from any thread."""

    def __init__(
        self,
        runner: Beating,
        open_store: Callable[[], Awaitable[Store]],
        *,
        fences: bool,
        beat_s: float = BEAT_S,
        attempt_s: float = BEAT_ATTEMPT_S,
        fence_after_s: float = SELF_FENCE_AFTER_S,
        look_at_loop: Callable[[], LoopHeld | None] = lambda: None,
        stuck_runs: Callable[[], tuple[RunId, ...]] = tuple,
    ) -> None:
        self._runner = runner
        self._open_store = open_store
        # Others may take its silence for death: it has to stop before they do.
        self._fences = fences
        self._beat_s = beat_s
        self._attempt_s = attempt_s
        self._fence_after_s = fence_after_s
        self._fence: asyncio.TimerHandle | None = None
        self._store: Store | None = None
        self._number = 0
        self._stopped = False
        self._sent: dict[RunId, float] = {}
        self._swept_at: StoreTime | None = None
        # The beat's thread is the one that can see that the loop of its process is blocked.
        self._look_at_loop = look_at_loop
        self._stuck_runs = stuck_runs
        self._held: LoopHeld | None = None
        self._held_sent = False
        self.errors = 0
        self.last_error: str | None = None
        # How many errors the beats have told, and when the last of them came.
        self._errors_known = 0
        self._error_at = 0.0

    def stop(self) -> None:
        self._stopped = True

    async def last(self, store: Store) -> None:
        """A last word before the good-bye, through the caller's own connection."""
        self.stop()
        await store.beat(self._runner.id, self._beat())

    def run_in_thread(self) -> None:
        """The body of the beat's own thread."""
        try:
            asyncio.run(self.run())
        except RuntimeError as error:
            # An interpreter that ends starts no threads any more, and a store is closed in one.
            if not self._stopped:
                raise
            self._note(error)

    async def run(self) -> None:
        clock = self._runner.clock
        next_beat = clock.monotonic()
        self._confirm(0.0)
        while not self._stopped:
            now = clock.monotonic()
            self._held = self._look_at_loop()
            if now >= next_beat or self._news():
                try:
                    confirmed = await self._attempt()
                except Exception as error:  # noqa: BLE001 - a beat that ends in silence would look like a death
                    self._note(error)
                    await self._hang_up()
                else:
                    if not confirmed and not self._stopped:
                        self._stop_for_good("its beat was refused: another process declared it gone")
                        break
                    self._confirm(clock.monotonic() - now)
                    next_beat = now + self._beat_s
            await asyncio.sleep(min(_PROGRESS_S, self._beat_s))
        if self._fence is not None:
            self._fence.cancel()
        await self._hang_up()

    async def _attempt(self) -> bool:
        """One beat, within its time. False: it was refused."""
        try:
            async with asyncio.timeout(self._attempt_s):
                if self._store is None:
                    self._store = await self._open_store()
                return await self._store.beat(self._runner.id, self._beat())
        except TimeoutError as error:
            raise Unavailable(f"no answer to a beat within {self._attempt_s:g} s") from error

    async def _hang_up(self) -> None:
        """Closes the connection. One that does not even close in time is left as it is."""
        store, self._store = self._store, None
        if store is None:
            return
        try:
            async with asyncio.timeout(self._attempt_s):
                await store.close()
        except Exception as error:  # noqa: BLE001 - as above; nothing rests on a connection that is given up
            self._note(error)

    def _confirm(self, sent_ago_s: float) -> None:
        """A beat that was sent so long ago has arrived: the fence is put off."""
        if not self._fences:
            return
        if self._fence is not None:
            self._fence.cancel()
        why = f"no beat was confirmed for {self._fence_after_s:g} s"
        left_s = self._fence_after_s - sent_ago_s
        self._fence = asyncio.get_running_loop().call_later(left_s, self._stop_for_good, why)

    def _stop_for_good(self, why: str) -> None:
        if not self._stopped:
            self.stop()
            self._runner.declared_gone(why)

    def _note(self, error: Exception) -> None:
        self.errors += 1
        self.last_error = f"{type(error).__name__}: {error}"

    def _news(self) -> bool:
        """Also of progress that is over: the next owner's, or the next step's, must not be taken for it."""
        sweep = self._runner.sweep_health()
        if sweep is not None and sweep.at != self._swept_at:
            return True
        if (self._held is not None) != self._held_sent:
            return True
        return self._sent != {run: progress.at for run, progress in list(self._runner.progress.items())}

    def _beat(self) -> Beat:
        self._number += 1
        progress = dict(self._runner.progress)
        self._sent = {run: each.at for run, each in progress.items()}
        errors, last_error = self._runner.troubles()
        now, errors = self._runner.clock.monotonic(), errors + self.errors
        if errors != self._errors_known:
            self._errors_known, self._error_at = errors, now
        sweep = self._runner.sweep_health()
        self._swept_at = None if sweep is None else sweep.at
        self._held_sent = self._held is not None
        return Beat(
            number=self._number,
            holding=self._runner.holding(),
            errors=errors,
            last_error=last_error or self.last_error,
            error_age_s=now - self._error_at if errors else 0.0,
            progress=progress,
            sweep=sweep,
            loop_held=self._held,
            stuck=self._stuck_runs(),
        )
