"""Start: stores a new run, or finds the run with its id."""

from __future__ import annotations

import re

import msgspec

from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.ids import RunId, check_run_id
from buoy.core.log.lifecycle import Status
from buoy.core.spec.model import SPEC_PREFIX
from buoy.engine.client.client import Client
from buoy.errors import StoreUnusable, Unavailable, WrongState
from buoy.operations.targets.spec_files import Target
from buoy.operations.targets.workflow_files import AnyWorkflow
from buoy.recovery.fleet import read_fleet


class Started(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored run. `created`: this call made it; `missing`: why no live worker can take it.

    `unseen`: the run is stored, and then the store gave no answer. Its status and its workers are not known.
    """

    run_id: RunId
    workflow: str
    created: bool
    missing: str | None
    status: Status
    unseen: str | None = None


async def start(client: Client, target: Target, run_id: str | None = None) -> Started:
    """Stores a run for workers to drive. The same id with the same input is one run."""
    checked, created = await begin(client, target, run_id)
    return await look_at(client, checked, target.workflow.name, created=created)


async def look_at(client: Client, run_id: RunId, workflow: str, *, created: bool) -> Started:
    """What becomes of a run that is stored. A store that does not answer any more must not make it look refused."""
    try:
        document = (await client.record(run_id)).document
        fleet = await read_fleet(client.store, client.liveness)
    except (Unavailable, StoreUnusable) as error:
        return Started(run_id, workflow, created, None, Status.PENDING, str(error))
    missing = None if document.ended else what_is_missing(document, fleet.living)
    return Started(run_id, workflow, created, missing, document.status)


async def begin(client: Client, target: Target, run_id: str | None = None) -> tuple[RunId, bool]:
    """Creates the run or finds it by id. Returns its id, and whether it is new."""
    workflow = target.workflow
    checked = check_run_id(run_id) if run_id is not None else _new_id(client, workflow)
    there = await client.store.run(checked) if run_id is not None else None
    if there is not None and there.document.workflow != workflow.name:
        raise WrongState(
            f"run {checked} is a run of {there.document.workflow}, not of {workflow.name}; choose another --id"
        )
    if there is None or target.stored is not None:
        await client.start_stored(checked, workflow, target.input)
    else:
        client.registry.add(workflow)
    return checked, there is None


def _new_id(client: Client, workflow: AnyWorkflow) -> RunId:
    """A new id that begins with the workflow's name, reduced to the characters of an id."""
    name = re.sub(r"[^a-z0-9._-]", "-", workflow.name.removeprefix(SPEC_PREFIX).lower()[:40]).lstrip("._-")
    return check_run_id(client.ids.new(f"{name}-" if name else ""))
