"""Rewind: returns a run to an earlier step. The plan comes first, so that it can be shown."""

from __future__ import annotations

from typing import Literal

import msgspec

from buoy.core.log import events as e
from buoy.core.remedy.rewind import RewindPlan
from buoy.engine.client.client import Client
from buoy.engine.client.rewind import made_before
from buoy.engine.spec.workflow import SpecWorkflow, load_spec


class Rewind(msgspec.Struct, frozen=True):
    """What was asked for. `file`: a spec file to continue with. `dedupe`: the same id again has no second effect."""

    run_id: str
    step: str | None
    cause: Literal["retry", "jump"]
    keep_answers: bool = False
    file: str | None = None
    dedupe: str | None = None


class RewindDone(msgspec.Struct, frozen=True):
    """What runs again, and whether it was done."""

    run_id: str
    done: bool
    plan: RewindPlan
    again: tuple[str, ...]


async def plan_rewind(client: Client, order: Rewind) -> RewindDone:
    """What would run again, and what would be kept."""
    spec = None if order.file is None else await spec_for(client, order.run_id, order.file)
    plan = await _made_before(client, order, spec)
    if plan is None:
        plan = await client.plan_retry(order.run_id, order.step, keep_answers=order.keep_answers, spec=spec)
    return RewindDone(order.run_id, False, plan, plan.again)


async def _made_before(client: Client, order: Rewind, spec: SpecWorkflow | None) -> RewindPlan | None:
    """The plan of this request, if it was carried out and its answer was lost."""
    if order.dedupe is None:
        return None
    run_id, keep = (await client.record(order.run_id)).document.run_id, order.keep_answers
    return await made_before(
        client, run_id, order.step, cause=order.cause, keep_answers=keep, spec=spec, dedupe=order.dedupe
    )


async def rewind(client: Client, order: Rewind) -> RewindDone:
    """Goes back to the step; the run continues from there on a new branch of its log."""
    if order.cause == "jump" and order.step is not None:
        plan = await client.jump(order.run_id, order.step, keep_answers=order.keep_answers, dedupe=order.dedupe)
    else:
        spec = None if order.file is None else await spec_for(client, order.run_id, order.file)
        keep = order.keep_answers
        plan = await client.retry(order.run_id, order.step, keep_answers=keep, spec=spec, dedupe=order.dedupe)
    return RewindDone(order.run_id, True, plan, plan.again)


async def spec_for(client: Client, run_id: str | None, file: str) -> SpecWorkflow:
    """The spec in a file, checked with the parameters that the run was started with."""
    if run_id is None:
        return load_spec(file)
    log = await client.store.events((await client.record(run_id)).document.run_id, limit=1)
    created = log[0].body if log else None
    given = msgspec.json.decode(created.input) if isinstance(created, e.WorkflowCreated) else None
    return load_spec(file, given=given if isinstance(given, dict) else None)
