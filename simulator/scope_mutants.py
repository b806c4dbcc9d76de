"""Scope mutants: planted bugs of who acts for whom: outside of a scope, unasked, by the clock twice, by wrong names."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.events import Body
from buoy.core.log.renames import Names
from buoy.core.schedule.schedule import Schedule, due, settled
from buoy.engine.authoring.context import Request
from buoy.engine.client import migrate
from buoy.engine.client.client import Client
from buoy.engine.client.migrate import Migration
from buoy.engine.code.replay import History
from buoy.operations.workers import scheduler
from buoy.operations.workers.scheduler import Fired, Scheduler, zone_of
from buoy.ports.records import Task, Wants
from buoy.ports.store import Store
from buoy.recovery import recover
from buoy.recovery.sweep.scope import Scope
from simulator.mutants import Mutant
from simulator.plan import LAB

if TYPE_CHECKING:
    from simulator.world import World


class OutsideScope(Mutant):
    """Runners take what belongs to another environment."""

    name = "outside-the-scope"
    rules = ("no process acts outside its scope",)
    enough = 60

    def __init__(self) -> None:
        super().__init__()
        self._count = count(1)

    async def claim_tasks(self, store: Store, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        if next(self._count) % 2:
            wants = msgspec.structs.replace(wants, env=LAB if wants.env is None else None)
        return await store.claim_tasks(runner, wants, limit)


class IgnoreStack(Mutant):
    """Runners of one stack take what belongs to another."""

    name = "ignore-the-stack"
    rules = ("no process acts outside its scope",)
    enough = 40

    async def claim_tasks(self, store: Store, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        return await store.claim_tasks(runner, msgspec.structs.replace(wants, stack=None), limit)


class SweepEverything(Mutant):
    """A sweeper cares for runs of every stack and env."""

    name = "sweep-outside-the-scope"
    rules = ("no process acts outside its scope",)
    enough = 60

    def install(self, world: World) -> None:
        self.patch(Scope, "covers", lambda scope, document: True)


class AdoptUnasked(Mutant):
    """A sweeper adopts a run that another system wrote, although its options do not allow that."""

    name = "adopt-unasked"
    rules = ("no process acts outside its scope",)
    enough = 60

    def install(self, world: World) -> None:
        def decided(*args: Any, **kwargs: Any) -> Any:
            return real(*args, **{**kwargs, "adopt": True})

        real = self.patch(recover, "decide", decided)


class FireTwice(Mutant):
    """The id of a run that is started by the clock does not depend on the time alone."""

    name = "fire-twice"
    rules = ("each time of a schedule starts one run",)
    enough = 60

    def install(self, world: World) -> None:
        number = count(1)

        def other(name: str, fire_at: float) -> RunId:
            return RunId(f"{real(name, fire_at)}-{next(number)}")

        real = self.patch(scheduler, "run_id", other)


class SettleFirst(Mutant):
    """A time is noted as fired before its run is there."""

    name = "settle-before-firing"
    rules = ("each time of a schedule starts one run",)
    enough = 150

    def install(self, world: World) -> None:
        async def fire(timer: Scheduler, schedule: Schedule, now: float) -> Fired:
            found = due(schedule, now, zone_of(schedule.zone))
            if found is None or not await timer._store.schedules.save_schedule(settled(schedule, found)):
                return Fired()
            for fire_at in found.fires:
                await timer._start(schedule, fire_at, now)
            return Fired(len(found.fires), found.skipped)

        self.patch(Scheduler, "_fire", fire)


class RenameKey(Mutant):
    """A step that was renamed while it was under way runs again under a key of its new name."""

    name = "rename-the-key"
    rules = ("keys tell effects apart",)
    enough = 60

    def install(self, world: World) -> None:
        def call_of(history: History, request: Request) -> tuple[msgspec.Raw, str]:
            return real(history, request)[0], request.started.key  # type: ignore[union-attr]

        real = self.patch(History, "call_of", call_of)
        self.patch(Names, "identity", lambda names, leaf: leaf)


class ForgetRename(Mutant):
    """A migration binds a run to other code, and does not say which names are new."""

    name = "forget-the-rename"
    rules = (
        "runs end or wait for something real",
        "runs end when all is answered",
        "code and log agree",
        "executed again",
    )
    enough = 60

    def install(self, world: World) -> None:
        def bodies(client: Client, found: Migration) -> list[Body]:
            made: list[Body] = real(client, msgspec.structs.replace(found, renamed={}))
            return made

        real = self.patch(migrate, "_bodies", bodies)


SCOPE_MUTANTS: tuple[type[Mutant], ...] = (
    OutsideScope,
    IgnoreStack,
    SweepEverything,
    AdoptUnasked,
    FireTwice,
    SettleFirst,
    RenameKey,
    ForgetRename,
)
