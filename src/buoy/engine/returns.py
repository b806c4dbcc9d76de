"""Returns: brings a run back to an earlier step, on the user's word. What will run again is known before it is done.

Invariants: the branch is one commit on a log that nobody else drives meanwhile: a run that is driven is paused first,
and one that executes too long is left alone, with the pause taken back. A run of a spec goes on with the definition
that it is bound to; another one is bound in the same commit, and only if it fits what stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from buoy.core import events as e
from buoy.core.branching import Plan, plan_return
from buoy.core.document import document
from buoy.core.ids import RunId
from buoy.core.spec import is_spec
from buoy.core.spec_return import plan_spec_return
from buoy.core.state import State, fold
from buoy.engine.loading import read_log
from buoy.engine.requests import live_runners
from buoy.engine.spec_trial import check_fit
from buoy.engine.spec_workflow import SpecWorkflow, stored_workflow
from buoy.errors import BadInput, WrongState
from buoy.ports import Committed, Released, RunRecord, Write

if TYPE_CHECKING:
    from buoy.core.spec_plan import Plan as SpecPlan
    from buoy.engine.client import Client

_PAUSE_WAIT_S = 15.0
_TRIES = 5


async def plan(
    client: Client, run_id: RunId, to: str | None, *, keep_answers: bool, spec: SpecWorkflow | None = None
) -> Plan:
    """What would be done, without doing it."""
    log = await read_log(client.store, run_id)
    found = await _plan(client, run_id, log, to, keep_answers=keep_answers, spec=spec)
    await _check(client, run_id, [*log, *_events(client, run_id, log, found, "retry", spec)], spec)
    return found


async def go_back(
    client: Client,
    run_id: RunId,
    to: str | None,
    *,
    cause: str,
    keep_answers: bool,
    spec: SpecWorkflow | None = None,
) -> Plan:
    """Makes the branch and lets the run go on from there."""
    held = False
    for _ in range(_TRIES):
        record = await client.record(run_id)
        was_paused = record.document.pause is not None and not held
        if await driven(client, record):
            held |= not was_paused
            await _hold(client, run_id)
        log = await read_log(client.store, run_id)
        if await driven(client, await client.record(run_id)):
            continue  # somebody took it meanwhile, and may be executing what this log has under way
        found = await _plan(client, run_id, log, to, keep_answers=keep_answers, spec=spec)
        # Somebody may have let it go on since it was looked at.
        stays_paused = was_paused and fold(run_id, log).pause is not None
        events = _events(client, run_id, log, found, cause, spec, stays_paused=stays_paused)
        await _check(client, run_id, [*log, *events], spec)
        if spec is not None:
            await client.store.define(spec.version, spec.stored)
        if await _commit(client, run_id, log, events, stays_paused=stays_paused):
            return found
    raise WrongState(f"run {run_id} moves all the time; pause it with `buoy pause {run_id}` and try again")


async def driven(client: Client, record: RunRecord) -> bool:
    """Whether a runner that is not known to be gone holds the run."""
    return any(each.info.id == record.holder for each in await live_runners(client))


async def _hold(client: Client, run_id: RunId) -> None:
    """Pauses a run that a live runner drives, and waits until that runner has let go of it."""
    if (await client.record(run_id)).document.pause is None:
        await client.pause(run_id, "to go back to an earlier step")
    deadline = client.clock.monotonic() + _PAUSE_WAIT_S
    while client.clock.monotonic() < deadline:
        record = await client.record(run_id)
        if record.document.ended or record.holder is None:
            return
        await client.store.changed(0.2)
        await asyncio.sleep(0)
    if (await client.record(run_id)).document.pause is not None:
        await client.resume(run_id)
    raise WrongState(f"run {run_id} still executes a step; try again when it has ended, or cancel the run first")


async def _plan(
    client: Client,
    run_id: RunId,
    log: Sequence[e.Event],
    to: str | None,
    *,
    keep_answers: bool,
    spec: SpecWorkflow | None,
) -> Plan:
    created = log[0].body if log else None
    if not isinstance(created, e.WorkflowCreated) or not is_spec(created.workflow):
        if spec is not None:
            raise BadInput(f"run {run_id} is no run of a spec: it is driven by code")
        return plan_return(run_id, log, to, keep_answers=keep_answers)
    graphs = await _graphs(client, fold(run_id, log), created, spec)

    def descendants(steps: set[str]) -> set[str]:
        return {below for each in graphs for below in each.descendants([step for step in steps if step in each.index])}

    found = plan_spec_return(run_id, log, descendants, to, keep_answers=keep_answers)
    return found if spec is None else replace(found, definition=spec.version)


async def _graphs(
    client: Client, state: State, created: e.WorkflowCreated, spec: SpecWorkflow | None
) -> list[SpecPlan]:
    """What depends on what, by the definition that the run had and by the one that it will have."""
    data = await client.store.definition(state.version)
    if data is None and spec is None:
        raise WrongState(
            f"definition {state.version} of run {state.run_id} is not in {client.store.url}; "
            "say --spec FILE to bind the run to another one"
        )
    known = [] if data is None else [stored_workflow(data, state.version)]
    return [each.plan(created.input) for each in (*known, *([] if spec is None else [spec]))]


async def _check(client: Client, run_id: RunId, log: Sequence[e.Event], spec: SpecWorkflow | None) -> None:
    if spec is not None:
        await check_fit(spec, run_id, log, client.clock)


def _events(
    client: Client,
    run_id: RunId,
    log: Sequence[e.Event],
    found: Plan,
    cause: str,
    spec: SpecWorkflow | None,
    *,
    stays_paused: bool = True,
) -> list[e.Event]:
    """What is appended: the claim, the branch, and what the run is bound to from there on."""
    state = fold(run_id, log)
    before: list[e.Body] = [e.Claimed(runner=client.actor, cause="requested")]
    if state.pause is not None and not stays_paused:
        before.append(e.Resumed(by=client.actor))
    jump, branch = found.events(cause, client.actor)
    bodies: list[e.Body] = [*before, jump, branch]
    if spec is not None and spec.version != state.version:
        bodies.append(e.VersionBound(version=spec.version, previous=state.version, detail="by --spec"))
    now = max(client.clock.now(), state.updated_at)
    first = len(before) + 2
    return [
        e.Event(
            state.head_seq + place,
            now,
            body,
            found.branch if place >= first else state.branch,
            nonce=client.ids.nonce() if place == 1 else None,
        )
        for place, body in enumerate(bodies, 1)
    ]


async def _commit(
    client: Client, run_id: RunId, log: Sequence[e.Event], events: list[e.Event], *, stays_paused: bool
) -> bool:
    """One commit; False if somebody else appended meanwhile."""
    doc = document(fold(run_id, [*log, *events]))
    change = Released(due_at=None if stays_paused else client.clock.now(), cause="resumed")
    outcome = (await client.store.commit([Write(run_id, log[-1].seq, tuple(events), doc, change)]))[0]
    return isinstance(outcome, Committed)
