"""Start named: starts a run of a workflow whose code this process does not have.

Invariants: an id is create-if-absent: the same workflow and input again are one run, any other input is refused. A key
stands for an id, so that a request that is made twice with one key makes one run. Without a version the run gets the
one of the live worker that registered last.
An input that does not fit is refused as far as this process can judge: a stored spec is planned, and live workers
publish the parameters of their Python code in short. The worker checks the rest, and pauses the run.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import msgspec

from buoy.core.ids import RunId, check_dedupe, check_name, check_run_id
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.remedy.policy import POLICIES
from buoy.core.spec.model import DIRECTORY, SPEC_PREFIX, is_spec
from buoy.engine.authoring.arguments import same_call
from buoy.engine.authoring.outline import check_input
from buoy.engine.client.client import Client
from buoy.engine.client.starts import create
from buoy.engine.spec.workflow import SpecArguments, stored_workflow
from buoy.errors import BadInput, UnknownWorkflow, WrongState
from buoy.operations.control.start import Started, look_at
from buoy.recovery.fleet import read_fleet

_PREFIX_CHARS = 40


class StartOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to start. `input`: arguments by name. `run_id` or `key` make a second request find the same run.

    `version`: of the workflow's code or of a stored spec; left out, that of the newest live worker.
    """

    workflow: str
    input: dict[str, Any] = {}
    run_id: str | None = None
    key: str | None = None
    version: str | None = None
    policy: str = "resume"
    queue: str = "default"


async def start_named(client: Client, order: StartOrder) -> Started:
    """Stores a run for workers to drive, or finds the one that the same request made before."""
    run_id = _run_id(client, order)
    there = await client.store.run(run_id)
    if there is None:
        created = await created_by(client, order)
        made = await create(client, run_id, created)
        given = created.input
    else:
        made, given = False, codec.encode(order.input, "the input")
    if not made:
        await _check_same(client, run_id, order, given)
    return await look_at(client, run_id, order.workflow, created=made)


def _run_id(client: Client, order: StartOrder) -> RunId:
    if order.run_id is not None and order.key is not None:
        raise BadInput("a start has a run_id or a key; send one of them")
    if order.run_id is not None:
        return check_run_id(order.run_id)
    name = re.sub(r"[^a-z0-9._-]", "-", order.workflow.removeprefix(SPEC_PREFIX).lower()[:_PREFIX_CHARS])
    prefix = f"{name.lstrip('._-') or 'run'}-"
    if order.key is None:
        return check_run_id(client.ids.new(prefix))
    named = f"{order.workflow} {check_dedupe(order.key)}".encode()
    return check_run_id(prefix + blake2b(named, digest_size=10).hexdigest())


async def created_by(client: Client, order: StartOrder) -> e.WorkflowCreated:
    """The first event of a run that this order starts."""
    check_name(order.workflow.removeprefix(SPEC_PREFIX), "workflow")
    if order.policy not in POLICIES:
        raise BadInput(f"policy {order.policy!r} is unknown; choose one of {', '.join(POLICIES)}")
    version = order.version
    if version is None or not is_spec(order.workflow):
        version = await _checked_version(client, order)
    stored, policy, queue = codec.encode(order.input, "the input"), order.policy, check_name(order.queue, "queue")
    if is_spec(order.workflow):
        stored, policy, queue = await _spec_input(client, order, version)
    return e.WorkflowCreated(
        workflow=order.workflow,
        input=stored,
        version=version,
        policy=policy,
        queue=queue,
        stack=client.stack,
        env=client.env,
        by=client.actor,
    )


async def _spec_input(client: Client, order: StartOrder, version: str) -> tuple[msgspec.Raw, str, str]:
    """All parameters of a stored spec, checked by planning the run, and what the spec says about its runs."""
    data = await client.store.definition(version)
    if data is None:
        raise UnknownWorkflow(f"this store has no definition {version!r}; start the spec once with `buoy start FILE`")
    workflow = stored_workflow(data, version)
    if workflow.name != order.workflow:
        raise BadInput(f"definition {version} is {workflow.name}, not {order.workflow}")
    own = any(each.name == DIRECTORY for each in workflow.spec.parameters)
    if not own and DIRECTORY not in order.input:
        raise BadInput(f"a spec needs the folder of its commands on the worker; send it as input {DIRECTORY!r}")
    assert isinstance(workflow.arguments, SpecArguments)
    stored = workflow.arguments.complete(order.input)
    workflow.arguments.decode(stored)
    return stored, workflow.recovery, workflow.queue


async def _checked_version(client: Client, order: StartOrder) -> str:
    """The version of the order, else of the newest live worker. A worker that has it also shows what input it takes."""
    fleet = await read_fleet(client.store, client.liveness)
    living = {each.id for each in fleet.living}
    knowing = [
        record
        for record in fleet.records.values()
        if record.info.id in living
        and record.info.role == "worker"
        and (versions := record.info.workflows.get(order.workflow))
        and order.version in (None, versions[-1])
    ]
    if knowing:
        newest = max(knowing, key=lambda record: (record.registered_at, record.info.id)).info
        outline = newest.outlines.get(order.workflow)
        if outline is not None:
            check_input(outline, order.input, order.workflow)
        return newest.workflows[order.workflow][-1]
    if order.version is None:
        raise UnknownWorkflow(f"no live worker knows workflow {order.workflow!r}; start one, or name a version")
    return order.version


async def _check_same(client: Client, run_id: RunId, order: StartOrder, given: msgspec.Raw) -> None:
    first = await client.store.events(run_id, limit=1)
    there = first[0].body if first else None
    if not isinstance(there, e.WorkflowCreated) or there.workflow != order.workflow:
        raise WrongState(f"run {run_id} exists already, and is a run of another workflow; choose another id")
    if is_spec(order.workflow):
        # A spec's input is stored with all its parameters; what the request leaves out is not compared.
        known, wanted = msgspec.json.decode(there.input), msgspec.json.decode(given)
        same = isinstance(known, dict) and all(known.get(name) == value for name, value in wanted.items())
    else:
        same = same_call(there.input, given)
    if not same:
        raise WrongState(f"run {run_id} exists already, with another input; choose another id")
