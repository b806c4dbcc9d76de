"""Returns: brings a run back to an earlier step, on the user's word. What will run again is known before it is done.

Invariants: all or nothing. The way back is planned before the run is touched, and the branch is one commit on a log
that no worker drives. A run that a worker drives is held first (`engine.rewind_hold`); whatever fails after that, the
hold is taken back. A run of a spec keeps the definition that it is bound to; another one is bound in the same commit,
and only if it fits what stays.
"""

from __future__ import annotations

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
from buoy.engine.requests import driven
from buoy.engine.rewind_hold import RewindHold
from buoy.engine.spec_trial import check_fit
from buoy.engine.spec_workflow import SpecWorkflow, stored_workflow
from buoy.errors import BadInput, WrongState
from buoy.ports import Committed, Released, Write

if TYPE_CHECKING:
    from buoy.core.spec_plan import Plan as SpecPlan
    from buoy.engine.client import Client

_TRIES = 5


async def plan(
    client: Client, run_id: RunId, to: str | None, *, keep_answers: bool, spec: SpecWorkflow | None = None
) -> Plan:
    """What would be done, without doing it."""
    log = await read_log(client.store, run_id)
    found = await _plan(client, run_id, log, to, keep_answers=keep_answers, spec=spec)
    hold = RewindHold(client, run_id)
    await _check(client, run_id, [*log, *_events(client, run_id, log, found, "retry", spec, hold)], spec)
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
    """Makes the branch and lets the run continue from there. All or nothing: whatever fails, the run is as it was."""
    # What cannot be done at all is refused before the run is touched.
    await plan(client, run_id, to, keep_answers=keep_answers, spec=spec)
    hold = RewindHold(client, run_id)
    try:
        for _ in range(_TRIES):
            found = await _try(client, run_id, to, hold, cause=cause, keep_answers=keep_answers, spec=spec)
            if found is not None:
                return found
        raise WrongState(f"run {run_id} moves all the time; pause it with `buoy pause {run_id}` and try again")
    except BaseException as error:
        await hold.give_up(error)
        raise


async def _try(
    client: Client,
    run_id: RunId,
    to: str | None,
    hold: RewindHold,
    *,
    cause: str,
    keep_answers: bool,
    spec: SpecWorkflow | None,
) -> Plan | None:
    """None: another process moved the run in between."""
    if await driven(client, await client.record(run_id)):
        await hold.take()
    log = await read_log(client.store, run_id)
    if await driven(client, await client.record(run_id)):
        return None  # it was taken in between, and what this log has under way may be executing
    found = await _plan(client, run_id, log, to, keep_answers=keep_answers, spec=spec)
    events = _events(client, run_id, log, found, cause, spec, hold)
    await _check(client, run_id, [*log, *events], spec)
    if spec is not None:
        await client.store.define(spec.version, spec.stored)
    return found if await _commit(client, run_id, log, events) else None


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
    hold: RewindHold,
) -> list[e.Event]:
    """What is appended: the claim, the end of our hold, the branch, and what the run is bound to from there on."""
    state = fold(run_id, log)
    before: list[e.Body] = [e.Claimed(runner=client.actor, cause="requested")]
    unread = hold.unread(state)
    if unread is not None:
        before.append(e.MessageRefused(message=unread, reason="it was not needed: the run went back already"))
    if hold.is_ours(state):
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


async def _commit(client: Client, run_id: RunId, log: Sequence[e.Event], events: list[e.Event]) -> bool:
    """One commit; False if another process appended in between. A run that a person paused stays paused."""
    doc = document(fold(run_id, [*log, *events]))
    change = Released(due_at=client.clock.now() if doc.pause is None else None, cause="resumed")
    outcome = (await client.store.commit([Write(run_id, log[-1].seq, tuple(events), doc, change)]))[0]
    return isinstance(outcome, Committed)
