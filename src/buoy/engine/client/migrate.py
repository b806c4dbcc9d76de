"""Migration: binds a run to code in which steps have other names, when a person asks for it.

Invariants: a migration is one commit on a log that no runner drives, and it changes nothing before every check has
passed. A run that was paused because the code did not fit continues; any other pause stays. The definition of a spec is
tried on the log before the run is bound to it. Code cannot be tried here: if it does not fit, its runner pauses the run
again and names the difference. A repeated request with the same dedupe id takes effect once: the id is the nonce of its
commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from buoy.core.ids import LeafId, RunId, check_dedupe
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.renames import check_renames
from buoy.core.log.state import State, fold
from buoy.core.spec.model import is_spec
from buoy.engine.client.requests import live_runners
from buoy.engine.read_log import read_log
from buoy.engine.run.run_time import run_now
from buoy.engine.services.commits import commit_surely, write_of
from buoy.engine.spec.compatibility import check_fit
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput, Unavailable, Unclear, WrongState
from buoy.ports.records import Released, RunRecord

if TYPE_CHECKING:
    from buoy.engine.client.client import Client

_TRIES = 5


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be. `version` empty: the next code that takes the run and fits."""

    run_id: RunId
    previous: str
    version: str
    renamed: dict[str, str]
    leaves: dict[LeafId, LeafId]
    # True if the run was paused because no code fitted it. It continues after the migration.
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
    dedupe: str | None = None,
) -> Migration:
    """Binds the run to new names; with `dry_run` only says what that would mean."""
    key = client.ids.nonce() if dedupe is None else check_dedupe(dedupe)
    nonce = f"migrate:{key}"
    try:
        for _ in range(_TRIES):
            record = await client.record(run_id)
            log = await read_log(client.store, run_id)
            done = _done_before(run_id, log, nonce, renamed)
            if done is not None:
                return done
            state = fold(run_id, log)
            await _check_free(client, record, state)
            target = await _target(client, state, version, spec)
            found = _migration(run_id, log, state, target, renamed)
            at = await run_now(client.store, client.clock, run_id, state.updated_at)
            new = append(run_id, log, _bodies(client, found), at, nonce)
            if spec is not None:
                await check_fit(spec, run_id, [*log, *new.events], client.clock)
            if dry_run:
                return found
            if spec is not None:
                await client.store.define(spec.version, spec.stored)
            now = client.clock.now()
            change = Released(due_at=now, now=now, cause="resumed") if found.goes_on else None
            if await commit_surely(client.store, write_of(new, change)):
                return msgspec.structs.replace(found, done=True)
    except Unavailable as error:
        text = f"it is not known whether run {run_id} was migrated ({error}); ask again with dedupe id {key}"
        raise Unclear(text, key=key) from error
    raise WrongState(f"run {run_id} moves all the time; pause it with `buoy pause {run_id}` and try again")


def _migration(
    run_id: RunId, log: Sequence[e.Event], state: State, version: str, renamed: Mapping[str, str]
) -> Migration:
    return Migration(
        run_id=run_id,
        previous=state.version,
        version=version,
        renamed=dict(renamed),
        leaves=check_renames(log, renamed),
        goes_on=state.pause is not None and state.pause.reason in ("version", "nondeterminism", "input"),
    )


def _done_before(
    run_id: RunId, log: Sequence[e.Event], nonce: str, renamed: Mapping[str, str]
) -> Migration | None:  # fmt: skip
    """What this request did already, if its answer was lost."""
    place = next((place for place, event in enumerate(log) if event.nonce == nonce), None)
    if place is None:
        return None
    bound = log[place + 1].body
    assert isinstance(bound, e.VersionBound), "the commit of a migration binds the run"
    before = log[:place]
    found = _migration(run_id, before, fold(run_id, before), bound.version, renamed)
    return msgspec.structs.replace(found, done=True)


async def _check_free(client: Client, record: RunRecord, state: State) -> None:
    """Refuses a run with a live owner: the owner read the log by the old names and would keep using them."""
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
    """The version to bind to: the requested one, the one that did not fit, or the only other one alive."""
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
    if state.pause is not None and state.pause.reason == "version" and state.pause.tried_version is not None:
        return state.pause.tried_version
    alive = {each for runner in await live_runners(client) for each in runner.info.workflows.get(name, ())}
    others = alive - {state.version}
    return others.pop() if len(others) == 1 else ""


def _bodies(client: Client, found: Migration) -> list[e.Body]:
    previous = found.previous or None
    bodies: list[e.Body] = [
        e.Claimed(runner=client.actor, cause="requested"),
        e.VersionBound(
            version=found.version, previous=previous, detail=f"migrated by {client.actor}", renamed=found.renamed
        ),
    ]
    if found.goes_on:
        bodies.append(e.Resumed(by=client.actor))
    return bodies
