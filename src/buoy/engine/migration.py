"""Migration: binds a run to code in which steps have other names, on the user's word.

Invariants: one commit on a log that nobody drives meanwhile; nothing is changed before all of it was checked. A run
that was paused because the code did not fit goes on; any other pause stays. A run of a spec is bound to a definition
that was tried on its log; code is not here to be tried: if it does not fit, the run is paused again, with the
difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from buoy.core import events as e
from buoy.core.document import document
from buoy.core.ids import LeafId, RunId
from buoy.core.lifecycle import TERMINAL
from buoy.core.renames import check_renames
from buoy.core.spec import is_spec
from buoy.core.state import State, fold
from buoy.core.versions import tried
from buoy.engine.loading import read_log
from buoy.engine.requests import live_runners
from buoy.engine.spec_trial import check_fit
from buoy.engine.spec_workflow import SpecWorkflow
from buoy.errors import BadInput, WrongState
from buoy.ports import Committed, Released, RunRecord, Write

if TYPE_CHECKING:
    from buoy.engine.client import Client

_TRIES = 5


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be. `version` empty: the next code that takes the run and fits."""

    run_id: RunId
    previous: str
    version: str
    renamed: dict[str, str]
    leaves: dict[LeafId, LeafId]
    # It was paused for want of fitting code, and goes on.
    goes_on: bool
    done: bool = False


async def migrate(
    client: Client,
    run_id: RunId,
    renamed: Mapping[str, str],
    *,
    version: str | None = None,
    spec: SpecWorkflow | None = None,
    dry_run: bool = False,
) -> Migration:
    """Binds the run to new names; with `dry_run` only says what that would mean."""
    for _ in range(_TRIES):
        record = await client.record(run_id)
        log = await read_log(client.store, run_id)
        state = fold(run_id, log)
        await _check_free(client, record, state)
        found = Migration(
            run_id=run_id,
            previous=state.version,
            version=await _target(client, state, version, spec),
            renamed=dict(renamed),
            leaves=check_renames(log, renamed),
            goes_on=state.pause is not None and state.pause.reason in ("version", "nondeterminism"),
        )
        events = _events(client, state, found)
        if spec is not None:
            await check_fit(spec, run_id, [*log, *events], client.clock)
        if dry_run:
            return found
        if spec is not None:
            await client.store.define(spec.version, spec.stored)
        if await _commit(client, run_id, log, events, goes_on=found.goes_on):
            return msgspec.structs.replace(found, done=True)
    raise WrongState(f"run {run_id} moves all the time; pause it with `buoy pause {run_id}` and try again")


async def _check_free(client: Client, record: RunRecord, state: State) -> None:
    """A live owner reads the log by the old names, and would go on by them."""
    if state.status in TERMINAL:
        raise WrongState(f"run {state.run_id} is {state.status}: retry it first, its code then says what does not fit")
    if not any(each.info.id == record.holder for each in await live_runners(client)):
        return
    if state.pause is None:
        raise WrongState(
            f"run {state.run_id} is driven by {record.holder}; pause it first with `buoy pause {state.run_id}`"
        )
    raise WrongState(f"run {state.run_id} is paused, but {record.holder} still executes a step of it; try again")


async def _target(client: Client, state: State, version: str | None, spec: SpecWorkflow | None) -> str:
    """The version to bind to: as told, or the one that did not fit, or the only other one that is alive."""
    assert state.created is not None
    name = state.created.workflow
    if is_spec(name):
        if spec is None:
            raise BadInput(
                f"run {state.run_id} is driven by a stored spec; say --spec FILE, the spec with the new names"
            )
        return spec.version
    if spec is not None:
        raise BadInput(f"run {state.run_id} is no run of a spec: it is driven by code")
    if version is not None:
        return version
    found = tried(state.pause)
    if found is not None:
        return found
    alive = {each for runner in await live_runners(client) for each in runner.info.workflows.get(name, ())}
    others = alive - {state.version}
    return others.pop() if len(others) == 1 else ""


def _events(client: Client, state: State, found: Migration) -> list[e.Event]:
    previous = found.previous or None
    bodies: list[e.Body] = [
        e.Claimed(runner=client.actor, cause="requested"),
        e.VersionBound(
            version=found.version, previous=previous, detail=f"migrated by {client.actor}", renamed=found.renamed
        ),
    ]
    if found.goes_on:
        bodies.append(e.Resumed(by=client.actor))
    now = max(client.clock.now(), state.updated_at)
    return [
        e.Event(state.head_seq + place, now, body, state.branch, nonce=client.ids.nonce() if place == 1 else None)
        for place, body in enumerate(bodies, 1)
    ]


async def _commit(
    client: Client, run_id: RunId, log: Sequence[e.Event], events: list[e.Event], *, goes_on: bool
) -> bool:
    """False if somebody else appended meanwhile."""
    state = fold(run_id, [*log, *events])
    change = Released(due_at=client.clock.now(), cause="resumed") if goes_on else None
    write = Write(state.run_id, log[-1].seq, tuple(events), document(state), change)
    return isinstance((await client.store.commit([write]))[0], Committed)
