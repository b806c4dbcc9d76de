"""Sweeper: the loop that sweeps, inside of a worker or as a process of its own.

It looks for dead runners and for orphans in the store's pace (`Store.pace`). A whole sweep, with a reconcile after it,
comes after a delay and then once in an interval. Both are spread by the runner's id, so that workers that were started
together do not sweep together.
Invariants: those of `sweep`. Its own health is kept, and travels with the beats: a sweeper that fails in silence is
worse than none.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

import msgspec

from buoy.core.ids import RunnerId
from buoy.core.limits import SWEEP_DELAY_S, SWEEP_LOOKS_MAX, SWEEP_S, SWEEP_SPREAD_MAX_S
from buoy.engine.client.client import Client
from buoy.ports.host import Liveness
from buoy.ports.records import SweepHealth
from buoy.ports.store import Store
from buoy.recovery.failure_detector import FailureDetector
from buoy.recovery.recover import Recovery
from buoy.recovery.sweep.reconcile import Reconciled, reconcile, reconcile_runs
from buoy.recovery.sweep.resume_paused import go_on_with_this_code
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import Sweep, SweepOptions
from buoy.recovery.sweep.tally import Swept, Tally

# What a recovery does to a run; all other actions leave it as it is.
RECOVERING = frozenset({"resume", "restart", "retry", "compensate", "fail", "hold", "quarantine"})


class WholeSweep(msgspec.Struct, frozen=True):
    """A whole sweep and the reconcile after it; of a quick look the reconcile is empty."""

    swept: Swept
    reconciled: Reconciled
    duration_s: float
    # Runners elsewhere whose second look is left to the next sweep.
    left: tuple[RunnerId, ...] = ()


class Sweeper:
    """Sweeps until it is stopped. `on_recovery` gets each run that a whole sweep found in trouble or a quick look
    recovered.

    `done` gets each whole sweep, and each quick look that found a dead runner or recovered a run. `delay_s`: the first
    whole sweep comes no earlier.
    """

    def __init__(
        self,
        store: Store,
        liveness: Liveness,
        *,
        client: Client,
        me: RunnerId | None = None,
        options: SweepOptions | None = None,
        interval_s: float = SWEEP_S,
        delay_s: float = SWEEP_DELAY_S,
        once: bool = False,
    ) -> None:
        self._store = store
        self._me = me
        self._client = client
        self._options = options or SweepOptions(looks_max=SWEEP_LOOKS_MAX)
        self._interval_s = interval_s
        # From its start on; to be set before that.
        self.delay_s = delay_s
        self._look_s = store.pace.fleet_s
        self._orphans_every = max(round(store.pace.orphans_s / self._look_s), 1)
        self._detector = FailureDetector(store, liveness, client.clock, once=once)
        # Where the next look at stale runs, and at waiting ones, begins.
        self._cursor: str | None = None
        self._waiting: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._health = SweepHealth(interval_s=interval_s)
        self.on_recovery: Callable[[Recovery], None] | None = None
        self.done: Callable[[WholeSweep], None] | None = None
        self.looks = 0
        self.errors = 0
        self.last_error: str | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="buoy-sweeper")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def sweeps(self) -> int:
        """Whole sweeps so far, also those that failed."""
        return self._health.sweeps

    def health(self) -> SweepHealth | None:
        """For the beats; None before it was started."""
        if self._task is None and not self._health.sweeps:
            return None
        return msgspec.structs.replace(
            self._health, errors=self.errors, last_error=self.last_error, delay_s=self.delay_s
        )

    async def _work(self) -> None:
        spread = _spread(self._me)
        whole_at = self._monotonic() + self.delay_s + min(2 * self.delay_s, SWEEP_SPREAD_MAX_S) * spread
        while True:
            try:
                await self.sweep(orphans=self.looks % self._orphans_every == 0)
                self.looks += 1
                if self._monotonic() >= whole_at:
                    whole_at = self._monotonic() + self._interval_s * (0.9 + 0.2 * spread)
                    await self.whole()
            except Exception as error:  # noqa: BLE001 - a loop that ends in silence is the worst way to fail
                self._note(error)
            await asyncio.sleep(self._look_s)

    def _monotonic(self) -> float:
        return self._client.clock.monotonic()

    def _note(self, error: Exception) -> None:
        self.errors += 1
        self.last_error = f"{type(error).__name__}: {error}"

    async def sweep(self, *, orphans: bool = True) -> Swept:
        """Looks quickly for dead runners and orphans. Any process may call it at any time."""
        began = self._monotonic()
        sweep = Sweep(self._client, self._detector, self._options, on_recovery=self._report_recovered)
        if self._options.limit is not None or self._options.rate is not None:
            # The user chose a long interval: then only whole sweeps act, and this loop only watches.
            await sweep.watch()
            return Swept()
        await sweep.dead()
        if orphans:
            await sweep.orphans()
        self._count(sweep.tally)
        found = sweep.tally.total()
        if self.done is not None and (found.dead_runners or sweep.tally.recovered):
            self.done(WholeSweep(found, Reconciled(), self._monotonic() - began, self._detector.left))
        return found

    def _report_recovered(self, found: Recovery) -> None:
        """A quick look comes every second: it shows what it did, and leaves the rest to the whole sweep."""
        if self.on_recovery is not None and found.needed and found.action in RECOVERING:
            self.on_recovery(found)

    def _count(self, tally: Tally) -> None:
        """Errors that a sweep survived are shown anyway."""
        if tally.errors:
            self.errors += tally.errors
            self.last_error = next(iter(tally.troubles), None)

    async def whole(self) -> WholeSweep:
        """A whole sweep from where the last one ended, and a reconcile. Its health is noted, also if it fails."""
        began = self._monotonic()
        sweep = Sweep(self._client, self._detector, self._options, cursor=self._cursor, on_recovery=self.on_recovery)
        try:
            swept = await sweep.whole()
            self._cursor = sweep.cursor
            reconciled = await self._reconcile(sweep)
            if self._client.runner is not None and not self._options.dry_run:
                await go_on_with_this_code(self._client)
        except BaseException:
            await self._note_health(self._monotonic() - began, failing=True)
            raise
        self._count(sweep.tally)
        took_s = self._monotonic() - began
        await self._note_health(took_s, failing=False)
        found = WholeSweep(swept, reconciled, took_s, self._detector.left)
        if self.done is not None:
            self.done(found)
        return found

    async def _reconcile(self, swept: Sweep) -> Reconciled:
        options = self._options
        if self._store.pace.billed:
            scope = Scope.of(self._client, options.scope)
            now = await self._store.now()
            return await reconcile_runs(self._client, scope, swept.read, now, dry_run=options.dry_run)
        done = await reconcile(
            self._client,
            options.scope,
            stale_after_s=options.stale_after_s,
            dry_run=options.dry_run,
            cursor=self._waiting,
            bounded=options.looks_max is not None,
        )
        self._waiting = done.cursor
        return done

    async def second_looks(self, patience_s: float) -> Swept:
        """For a sweeper that will not stay: keeps looking at runners elsewhere that an earlier sweep suspected."""
        until = self._monotonic() + patience_s
        sweep = Sweep(self._client, self._detector, self._options, on_recovery=self.on_recovery)
        while self._detector.pending and self._monotonic() < until:
            await asyncio.sleep(self._look_s)
            await sweep.dead()
        return sweep.tally.total()

    async def _note_health(self, took_s: float, *, failing: bool) -> None:
        at = self._health.at if failing else await self._store.now()
        self._health = msgspec.structs.replace(
            self._health, at=at, duration_s=round(took_s, 3), sweeps=self._health.sweeps + 1, failing=failing
        )


def _spread(me: RunnerId | None) -> float:
    """Between 0 and 1, another one for each runner."""
    return zlib.crc32((me or "").encode()) / 2**32
