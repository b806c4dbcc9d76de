"""Schedules: adds, pauses, resumes and removes them.

Invariant: every change is written over exactly what was read; one that was overtaken is tried again on what is there.
A removed schedule stays known by name and number, so that a late writer cannot bring it back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from buoy.core.limits import SCHEDULES_MAX
from buoy.core.schedule.schedule import CatchUp, Schedule, check_schedule
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.client.client import Client
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput, CorruptLog, Unavailable, UnknownSchedule, WrongState
from buoy.operations.control.start_named import StartOrder, created_by
from buoy.operations.workers.scheduler import zone_of
from buoy.ports.records import Broken

_TRIES_MAX = 20


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When to start runs: by a cron expression, or by an interval in seconds."""

    cron: str | None = None
    every_s: float | None = None
    zone: str | None = None
    catch_up: CatchUp = "last"


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule starts."""

    workflow: str
    input: msgspec.Raw
    version: str
    policy: str
    queue: str


async def add_schedule(
    client: Client, name: str, workflow: Workflow[..., Any], stored: msgspec.Raw, times: Times
) -> Schedule:
    """A new schedule, or the one that is there if it is the same. It fires from now on."""
    workflow.arguments.decode(stored)
    if isinstance(workflow, SpecWorkflow):
        await client.store.define(workflow.version, workflow.stored)
    what = Scheduled(
        workflow=workflow.name,
        input=stored,
        version=workflow.version,
        policy=workflow.recovery,
        queue=workflow.queue,
    )
    return await _add(client, name, what, times)


async def add_named_schedule(client: Client, name: str, order: StartOrder, times: Times) -> Schedule:
    """As `add_schedule`, for a workflow whose code this process does not have."""
    if order.run_id is not None or order.key is not None:
        raise BadInput("a schedule names its runs itself; leave out run_id and key")
    made = await created_by(client, order)
    what = Scheduled(
        workflow=made.workflow, input=made.input, version=made.version, policy=made.policy, queue=made.queue
    )
    return await _add(client, name, what, times)


async def _add(client: Client, name: str, what: Scheduled, times: Times) -> Schedule:
    made = await _made(client, name, what, times)
    check_schedule(made, zone_of(times.zone))
    for _ in range(_TRIES_MAX):
        known = {each.name: each for each in await client.store.schedules.schedules()}
        there = known.get(name)
        if there is not None and there.removed_at is None:
            return _same(there, made)
        if there is None and len(known) >= SCHEDULES_MAX:
            raise WrongState(f"there are {len(known):,} schedules already, which is the limit; remove some first")
        new = msgspec.structs.replace(made, number=1 if there is None else there.number + 1)
        if await client.store.schedules.save_schedule(new):
            return new
    raise _busy(name)


async def _made(client: Client, name: str, what: Scheduled, times: Times) -> Schedule:
    every_s = times.every_s
    if every_s is not None and every_s != int(every_s):
        raise BadInput(f"an interval of {every_s:g} s has parts of a second; schedules go by whole seconds")
    now = float(await client.store.now())
    return Schedule(
        name=name,
        workflow=what.workflow,
        input=what.input,
        created_at=now,
        settled_at=now,
        cron=times.cron,
        every_s=None if every_s is None else int(every_s),
        zone=times.zone,
        catch_up=times.catch_up,
        workflow_version=what.version,
        policy=what.policy,
        queue=what.queue,
        stack=client.stack,
        env=client.env,
        by=client.actor,
    )


# As a person calls them.
_WORDS = {"cron": "cron expression", "every_s": "interval", "zone": "time zone", "catch_up": "way to catch up"}


def _same(there: Schedule, made: Schedule) -> Schedule:
    fields = ("workflow", "input", "cron", "every_s", "zone", "catch_up")
    differs = [_WORDS.get(field, field) for field in fields if getattr(there, field) != getattr(made, field)]
    if differs:
        raise WrongState(
            f"schedule {there.name} exists already, with another {', '.join(differs)}; "
            "remove it first, or choose another name"
        )
    return there


async def pause_schedule(client: Client, name: str) -> Schedule:
    """Stops firing until it is resumed."""
    now = float(await client.store.now())

    def change(there: Schedule) -> Schedule:
        if there.paused_at is not None:
            raise WrongState(f"schedule {name} is paused already")
        return msgspec.structs.replace(there, paused_at=now)

    return await _change(client, name, change)


async def resume_schedule(client: Client, name: str) -> Schedule:
    """Fires again from now on. Times that passed during the pause are skipped."""
    now = float(await client.store.now())

    def change(there: Schedule) -> Schedule:
        if there.paused_at is None:
            raise WrongState(f"schedule {name} is not paused")
        return msgspec.structs.replace(there, paused_at=None, settled_at=now)

    return await _change(client, name, change)


async def remove_schedule(client: Client, name: str) -> Schedule | Broken:
    """Stops firing permanently. Its runs continue. A schedule that cannot be read is deleted."""
    broken = await _broken(client, name)
    if broken is not None and await client.store.schedules.discard_broken(name):
        return broken
    now = float(await client.store.now())

    def change(there: Schedule) -> Schedule:
        return msgspec.structs.replace(there, removed_at=now)

    return await _change(client, name, change)


class FoundSchedules(msgspec.Struct, frozen=True):
    """The schedules of a store at one moment, and those that cannot be read."""

    schedules: tuple[Schedule, ...]
    broken: tuple[Broken, ...]
    now: float

    def listed(self) -> ScheduleList:
        """As programs get them."""
        return ScheduleList(self.schedules, self.broken or msgspec.UNSET)


class ScheduleList(msgspec.Struct, frozen=True):
    """The schedules as `--json` gives them."""

    schedules: tuple[Schedule, ...]
    broken: tuple[Broken, ...] | msgspec.UnsetType = msgspec.UNSET


async def list_schedules(client: Client) -> FoundSchedules:
    """All that were not removed."""
    found, broken = await all_schedules(client), await client.store.schedules.broken()
    return FoundSchedules(tuple(found), tuple(broken), float(await client.store.now()))


async def all_schedules(client: Client) -> list[Schedule]:
    return [each for each in await client.store.schedules.schedules() if each.removed_at is None]


async def _change(client: Client, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
    for _ in range(_TRIES_MAX):
        known = {each.name: each for each in await all_schedules(client)}
        if name not in known:
            broken = await _broken(client, name)
            if broken is not None:
                raise CorruptLog(f"schedule {name} cannot be read: {broken.reason}; remove it and add it again")
            names = ", ".join(sorted(known)[:10]) or "none"
            raise UnknownSchedule(f"there is no schedule {name!r}; there are: {names}")
        new = msgspec.structs.replace(change(known[name]), number=known[name].number + 1)
        if await client.store.schedules.save_schedule(new):
            return new
    raise _busy(name)


async def _broken(client: Client, name: str) -> Broken | None:
    return next((each for each in await client.store.schedules.broken() if each.id == name), None)


def _busy(name: str) -> Unavailable:
    return Unavailable(f"schedule {name} is changed by others all the time; try again")
