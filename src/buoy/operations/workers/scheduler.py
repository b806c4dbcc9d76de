"""Scheduler: starts runs by the clock. Every worker has one, and any number of them may work at once.

Invariants: the id of a run is made of its schedule and its time, and the run is created if absent. So no time fires
twice, even if several workers try, and a crash between the run and its record does no harm. The schedule says which
times are caught up on if no worker was alive. The scheduler counts its errors, because a silent failure is the worst.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.schedule.schedule import Schedule, due, fires, run_id, settled
from buoy.engine.services.commits import commit_surely, write_of
from buoy.errors import BadInput
from buoy.ports.host import Clock, Ids
from buoy.ports.records import Released
from buoy.ports.store import Store
from buoy.recovery.sweep.scope import Scope

# Time between two reads of all schedules; they are also read when one of them is due. On a store of this machine a
# read costs little, so it happens every second: a new schedule should not miss its first time.
_HINTED_S = 10.0
_LOOK_S = 1.0


class Fired(msgspec.Struct, frozen=True):
    """What one call of `look` did."""

    started: int = 0
    skipped: int = 0


class Scheduler:
    """A loop that looks every second at the schedules of its scope."""

    def __init__(self, store: Store, *, clock: Clock, ids: Ids, scope: Scope | None = None) -> None:
        self._store = store
        self._scope = scope or Scope()
        self._clock = clock
        self._ids = ids
        self._known: list[Schedule] = []
        self._read_at: float | None = None
        self._reload_s = _LOOK_S if store.single_host else store.pace.schedules_s
        # A store with a slow pace hints at changes: so many seconds after a reading they are read again.
        self._hinted = False
        self._task: asyncio.Task[None] | None = None
        self.errors = 0
        self.last_error: str | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="buoy-scheduler")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - a loop that ends in silence is the worst way to fail
                self._note(error)
            if self._reload_s > _HINTED_S:
                self._hinted |= await self._store.wait_for_change(0.0)
            await asyncio.sleep(_LOOK_S)

    def _note(self, error: Exception) -> None:
        self.errors += 1
        self.last_error = f"{type(error).__name__}: {error}"

    async def look(self) -> Fired:
        """Starts what is due. Any process may call it at any time."""
        # By the store's clock, if it has one: all workers then agree on what is due.
        now, fresh = float(await self._store.now()), self._fresh()
        if fresh and not any(self._is_due(schedule, now) for schedule in self._known):
            return Fired()
        # Read again before a run is started: the schedule may have been paused, changed or fired since.
        self._known = [each for each in await self._store.schedules.schedules() if self._scope.covers(each)]
        self._read_at, self._hinted = self._clock.monotonic(), False
        started = skipped = 0
        for schedule in list(self._known):
            try:
                done = await self._fire(schedule, now)
            except BadInput as error:
                # One that cannot be read must not hold up the others.
                self._note(error)
                continue
            started, skipped = started + done.started, skipped + done.skipped
        return Fired(started, skipped)

    def _fresh(self) -> bool:
        return self._read_at is not None and self._clock.monotonic() - self._read_at < (
            min(_HINTED_S, self._reload_s) if self._hinted else self._reload_s
        )

    def _is_due(self, schedule: Schedule, now: float) -> bool:
        try:
            return due(schedule, now, zone_of(schedule.zone)) is not None
        except BadInput as error:
            self._note(error)
            return False

    async def _fire(self, schedule: Schedule, now: float) -> Fired:
        found = due(schedule, now, zone_of(schedule.zone))
        if found is None:
            return Fired()
        started = 0
        for fire_at in found.fires:
            started += await self._start(schedule, fire_at, now)
        after = settled(schedule, found)
        # False: another worker was here at the same time, and started the same.
        if await self._store.schedules.save_schedule(after):
            self._known = [after if each.name == after.name else each for each in self._known]
        else:
            self._read_at = None
        return Fired(started, found.skipped)

    async def _start(self, schedule: Schedule, fire_at: float, now: float) -> bool:
        """Whether this call created the run of that time."""
        name = run_id(schedule.name, fire_at)
        created = e.WorkflowCreated(
            workflow=schedule.workflow,
            input=schedule.input,
            version=schedule.workflow_version,
            policy=schedule.policy,
            queue=schedule.queue,
            stack=schedule.stack,
            env=schedule.env,
            by=f"schedule {schedule.name}",
        )
        new = append(name, (), [created], now, self._ids.nonce())
        return await commit_surely(self._store, write_of(new, Released(due_at=now, now=now, cause="created")))


def zone_of(name: str | None) -> tzinfo:
    """The zone of that name, or a refusal."""
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(f"time zone {name!r} is not known here; write one like 'Europe/Berlin' or 'UTC'") from error


def next_fire(schedule: Schedule, now: float) -> float | None:
    """When it fires next, or None if it does not."""
    if not schedule.active:
        return None
    return next(fires(schedule, max(now, schedule.settled_at), zone_of(schedule.zone)), None)
