"""Starts: creates a run that any runner may take, or finds the one that exists.

Invariants: a start is certain, or raises `Unclear` with the run's id; starting that id again makes one run. An existing
id is returned only for the same workflow and the same input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.engine.absence import absent_run
from buoy.engine.authoring.arguments import Arguments, same_call
from buoy.engine.services.commits import commit_surely, write_of
from buoy.errors import NotWritten, Unavailable, Unclear, WrongState
from buoy.ports.records import Released

if TYPE_CHECKING:
    from buoy.engine.client.client import Client


async def create(client: Client, run_id: RunId, created: e.WorkflowCreated) -> bool:
    """Whether this call made the run. False: there was one of that id."""
    now = client.clock.now()
    new = append(run_id, (), [created], now, client.ids.nonce())
    try:
        return await commit_surely(client.store, write_of(new, Released(due_at=now, now=now, cause="created")))
    except NotWritten:
        raise
    except Unavailable as error:
        text = f"it is not known whether run {run_id} was started ({error}); start it again under that very id"
        raise Unclear(text, key=run_id) from error


async def check_same(client: Client, run_id: RunId, created: e.WorkflowCreated, arguments: Arguments) -> None:
    """Refuses a run that exists already and is not what this start would have made."""
    first = await client.store.events(run_id, limit=1)
    if not first:
        raise await absent_run(client.store, run_id)
    there = first[0].body
    if not isinstance(there, e.WorkflowCreated) or there.workflow != created.workflow:
        other = there.workflow if isinstance(there, e.WorkflowCreated) else "something else"
        raise WrongState(f"run {run_id} exists already, and is a run of {other}; choose another id")
    if there.placement != created.placement:
        raise WrongState(f"run {run_id} exists already, and its placement is {there.placement}; choose another id")
    if not same_call(arguments.completed(there.input), created.input):
        raise WrongState(f"run {run_id} exists already, with another input; choose another id")
