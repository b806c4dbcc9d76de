"""Fleet: the runners of a store, its sweepers, and the workflows that they know.

Invariants: a look changes nothing. Ages are by the store's clock, and absent where no clock can tell them.
"""

from __future__ import annotations

import msgspec

from buoy.core.diagnosis.facts import RunnerFacts
from buoy.core.limits import RUNNERS_GONE_KEPT
from buoy.engine.client.client import Client
from buoy.errors import BadInput, UnknownWorkflow
from buoy.recovery.fleet import read_fleet
from buoy.recovery.sweep.sweeper_health import SweeperState, sweeper_troubles, sweepers_of


class RunnerList(msgspec.Struct, frozen=True):
    """Runners that live, and the newest of those that are gone."""

    living: tuple[RunnerFacts, ...]
    gone: tuple[RunnerFacts, ...]


class SweeperList(msgspec.Struct, frozen=True):
    """Which processes sweep, and what is wrong with that."""

    sweepers: tuple[SweeperState, ...]
    troubles: tuple[str, ...]


class KnownWorkflow(msgspec.Struct, frozen=True):
    """A workflow that live workers have code for: its versions, and on how many workers."""

    name: str
    versions: tuple[str, ...]
    workers: int


class DefinitionList(msgspec.Struct, frozen=True):
    """The workflows that can be started by name now."""

    workflows: tuple[KnownWorkflow, ...]


class DefinitionText(msgspec.Struct, frozen=True):
    """A stored definition: a spec, byte by byte as its version was made from it."""

    version: str
    definition: msgspec.Raw


async def list_runners(client: Client, *, gone: int = 20) -> RunnerList:
    """The living, and the newest `gone` of the others."""
    if not 0 <= gone <= RUNNERS_GONE_KEPT:
        raise BadInput(f"gone must be from 0 to {RUNNERS_GONE_KEPT}: {gone}")
    fleet = await read_fleet(client.store, client.liveness, gone=gone)
    left = tuple(each for each in fleet.all.values() if each.gone)
    return RunnerList(fleet.living, left)


async def list_sweepers(client: Client) -> SweeperList:
    """The sweepers, as their runners' heartbeats tell."""
    fleet = await read_fleet(client.store, client.liveness)
    known = {str(name): facts for name, facts in fleet.all.items()}
    found = sweepers_of(tuple(fleet.records.values()), known, await client.store.now())
    return SweeperList(tuple(found), tuple(sweeper_troubles(found, known, needed=False)))


async def list_definitions(client: Client) -> DefinitionList:
    """The workflows of all live workers, by name."""
    fleet = await read_fleet(client.store, client.liveness)
    versions: dict[str, dict[str, None]] = {}
    workers: dict[str, int] = {}
    for runner in fleet.living:
        if runner.role != "worker":
            continue
        for name, known in runner.workflows.items():
            versions.setdefault(name, {}).update(dict.fromkeys(known))
            workers[name] = workers.get(name, 0) + 1
    return DefinitionList(
        tuple(KnownWorkflow(name, tuple(found), workers[name]) for name, found in sorted(versions.items()))
    )


async def stored_definition(client: Client, version: str) -> DefinitionText:
    """The definition of that version, if the store keeps it: specs are data, Python code is not."""
    data = await client.store.definition(version) if version.isalnum() and len(version) <= 128 else None
    if data is None:
        raise UnknownWorkflow(f"this store keeps no definition {version[:128]!r}; code of Python is with its workers")
    return DefinitionText(version, msgspec.Raw(data))
