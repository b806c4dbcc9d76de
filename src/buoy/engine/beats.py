"""Beats: a runner's sign of life, one write for all that it holds.

Invariants: beats go through a connection of their own, from a thread of their own, so that neither a busy loop nor a
half transaction of the worker can silence or spoil them. A refused beat is final: the runner was declared
gone and stops. A process that ends may overtake the thread: after `stop` nothing rests on what is left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import BEAT_S, SELF_FENCE_AFTER_S
from buoy.ports import Beat, Clock, LoopHeld, Progress, Store, SweepHealth

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


class Beats:
    """The loop that beats. `stop` may be called from any thread."""

    def __init__(
        self,
        runner: Beating,
        open_store: Callable[[], Awaitable[Store]],
        *,
        beat_s: float = BEAT_S,
        look_at_loop: Callable[[], LoopHeld | None] = lambda: None,
    ) -> None:
        self._runner = runner
        self._open_store = open_store
        self._beat_s = beat_s
        self._number = 0
        self._stopped = False
        self._sent: dict[RunId, float] = {}
        self._swept_at: float | None = None
        # The beat's thread is the one that can see that the loop of its process is blocked.
        self._look_at_loop = look_at_loop
        self._held: LoopHeld | None = None
        self._held_sent = False
        self.errors = 0
        self.last_error: str | None = None

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
        store: Store | None = None
        clock = self._runner.clock
        confirmed = clock.monotonic()
        next_beat = confirmed
        while not self._stopped:
            now = clock.monotonic()
            self._held = self._look_at_loop()
            if now >= next_beat or self._news():
                sent = now
                try:
                    store = store or await self._open_store()
                    if not await store.beat(self._runner.id, self._beat()) and not self._stopped:
                        self._runner.declared_gone("its beat was refused: another process declared it gone")
                        break
                    confirmed = sent
                    next_beat = sent + self._beat_s
                except Exception as error:  # noqa: BLE001 - a beat that ends in silence would look like a death
                    self._note(error)
                if store is not None and not store.one_host and clock.monotonic() - confirmed > SELF_FENCE_AFTER_S:
                    self._runner.declared_gone(f"no beat was confirmed for {SELF_FENCE_AFTER_S:g} s")
                    break
            await asyncio.sleep(min(_PROGRESS_S, self._beat_s))
        if store is not None:
            await store.close()

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
        sweep = self._runner.sweep_health()
        self._swept_at = None if sweep is None else sweep.at
        self._held_sent = self._held is not None
        return Beat(
            number=self._number,
            holding=self._runner.holding(),
            errors=errors + self.errors,
            last_error=last_error or self.last_error,
            progress=progress,
            sweep=sweep,
            loop_held=self._held,
        )
