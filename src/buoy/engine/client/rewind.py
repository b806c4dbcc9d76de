"""Rewind: brings a run back to an earlier step when a person asks for it. The plan shows first what will run again.

Invariants: all or nothing. The way back is planned before the run is touched, and the branch is one commit on a log
that no worker drives. A run that a worker drives is held first (`engine.client.rewind_hold`); whatever fails after
that, the hold is taken back. A run of a spec keeps the definition that it is bound to; another one is bound in the same
commit, and only if it fits what stays. A request that is made again makes no second branch: its key is the nonce of its
commit, and without a key it is known by its branch, as long as nothing has run there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from buoy.core.ids import RunId, check_dedupe
from buoy.core.log import events as e
from buoy.core.log.append import Appended, append
from buoy.core.log.state import State, fold
from buoy.core.remedy.rewind import RewindPlan, plan_return
from buoy.core.remedy.spec_rewind import plan_spec_return
from buoy.core.spec.model import is_spec
from buoy.engine.client.requests import driven
from buoy.engine.client.rewind_hold import RewindHold, until_jobs_left
from buoy.engine.read_log import read_log
from buoy.engine.run.run_time import run_now
from buoy.engine.services.commits import commit_surely, write_of
from buoy.engine.spec.compatibility import check_fit
from buoy.engine.spec.workflow import SpecWorkflow, stored_workflow
from buoy.errors import BadInput, Unavailable, Unclear, UserError, WrongState
from buoy.ports.records import Released

if TYPE_CHECKING:
    from buoy.core.spec.plan import SpecPlan
    from buoy.engine.client.client import Client

_TRIES = 5
# What may follow a branch without anything having run on it.
_STILL = (e.Claimed, e.Interrupted, e.Paused, e.Resumed, e.VersionBound, e.Published)


async def plan(
    client: Client, run_id: RunId, to: str | None, *, keep_answers: bool, spec: SpecWorkflow | None = None
) -> RewindPlan:
    """What would be done, without doing it."""
    log = await read_log(client.store, run_id)
    found = await _plan(client, run_id, log, to, keep_answers=keep_answers, spec=spec)
    new = _append(client, run_id, log, found, "retry", spec, RewindHold(client, run_id), "a plan", log[-1].at)
    await _check(client, run_id, [*log, *new.events], spec)
    return found


async def rewind_run(
    client: Client,
    run_id: RunId,
    to: str | None,
    *,
    cause: str,
    keep_answers: bool,
    spec: SpecWorkflow | None = None,
    dedupe: str | None = None,
) -> RewindPlan:
    """Makes the branch and lets the run continue from there. All or nothing: whatever fails, the run is as it was."""
    key = client.ids.nonce() if dedupe is None else check_dedupe(dedupe)
    way = _Way(client, run_id, to, cause, f"{cause}:{key}", keep_answers=keep_answers, spec=spec)
    done = await way.done_before()
    if done is not None:
        return done
    # What cannot be done at all is refused before the run is touched.
    await plan(client, run_id, to, keep_answers=keep_answers, spec=spec)
    hold = RewindHold(client, run_id)
    try:
        for _ in range(_TRIES):
            found = await _try(way, hold)
            if found is not None:
                return found
        raise WrongState(f"run {run_id} moves all the time; pause it with `buoy pause {run_id}` and try again")
    except Unavailable as error:
        await hold.give_up(error)
        text = f"it is not known whether run {run_id} went back ({error}); ask again with dedupe id {key}"
        raise Unclear(text, key=key) from error
    except BaseException as error:
        await hold.give_up(error)
        raise


async def made_before(
    client: Client,
    run_id: RunId,
    to: str | None,
    *,
    cause: str,
    keep_answers: bool,
    spec: SpecWorkflow | None,
    dedupe: str,
) -> RewindPlan | None:
    """What the request with this dedupe id has done, if it was carried out already."""
    nonce = f"{cause}:{check_dedupe(dedupe)}"
    return await _Way(client, run_id, to, cause, nonce, keep_answers=keep_answers, spec=spec).done_before()


class _Way:
    """One request to go back, and how it is known again in a log."""

    def __init__(
        self,
        client: Client,
        run_id: RunId,
        to: str | None,
        cause: str,
        nonce: str,
        *,
        keep_answers: bool,
        spec: SpecWorkflow | None,
    ) -> None:
        self.client = client
        self.run_id = run_id
        self.cause = cause
        self.nonce = nonce
        self.spec = spec
        self._to = to
        self._keep_answers = keep_answers

    async def plan(self, log: Sequence[e.Event]) -> RewindPlan:
        keep = self._keep_answers
        return await _plan(self.client, self.run_id, log, self._to, keep_answers=keep, spec=self.spec)

    async def done_before(self) -> RewindPlan | None:
        """What this request did already, if its answer was lost."""
        log = await read_log(self.client.store, self.run_id)
        place = next((place for place, event in enumerate(log) if event.nonce == self.nonce), None)
        if place is not None:
            return await self.plan(log[:place])
        return await self._where_it_stands(log)

    async def _where_it_stands(self, log: Sequence[e.Event]) -> RewindPlan | None:
        """The same request without a key: the run is on the branch that it made, and nothing has run there."""
        made = max((place for place, event in enumerate(log) if isinstance(event.body, e.BranchCreated)), default=None)
        if made is None or any(not isinstance(event.body, _STILL) for event in log[made + 1 :]):
            return None
        begin = max(place for place in range(made + 1) if log[place].nonce is not None or place == 0)
        try:
            found = await self.plan(log[:begin])
        except UserError:
            return None  # another request made that branch
        same = (log[made - 1].body, log[made].body) == found.events(self.cause, self.client.actor)
        return found if same and (self.spec is None or fold(self.run_id, log).version == self.spec.version) else None


async def _try(way: _Way, hold: RewindHold) -> RewindPlan | None:
    """None: another process moved the run in between."""
    client, run_id, spec = way.client, way.run_id, way.spec
    if await driven(client, await client.record(run_id)):
        await hold.take()
    log = await read_log(client.store, run_id)
    if await driven(client, await client.record(run_id)):
        return None  # it was taken in between, and what this log has under way may be executing
    found = await way.plan(log)
    if (await client.record(run_id)).document.placement == "batch":
        await until_jobs_left(client, run_id, fold(run_id, log), found.again)
    at = await run_now(client.store, client.clock, run_id, log[-1].at)
    new = _append(client, run_id, log, found, way.cause, spec, hold, way.nonce, at)
    await _check(client, run_id, [*log, *new.events], spec)
    if spec is not None:
        await client.store.define(spec.version, spec.stored)
    # A run that a person paused stays paused.
    now = client.clock.now()
    change = Released(due_at=now if new.state.pause is None else None, now=now, cause="resumed")
    return found if await commit_surely(client.store, write_of(new, change)) else None


async def _plan(
    client: Client,
    run_id: RunId,
    log: Sequence[e.Event],
    to: str | None,
    *,
    keep_answers: bool,
    spec: SpecWorkflow | None,
) -> RewindPlan:
    created = log[0].body if log else None
    if log and isinstance(log[-1].body, e.Moved):
        raise WrongState(f"run {run_id} has moved to {log[-1].body.to}; retry it there")
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
            f"definition {state.version} of run {state.run_id} is not in {client.store.name}; "
            "say --spec FILE to bind the run to another one"
        )
    known = [] if data is None else [stored_workflow(data, state.version)]
    return [each.plan(created.input) for each in (*known, *([] if spec is None else [spec]))]


async def _check(client: Client, run_id: RunId, log: Sequence[e.Event], spec: SpecWorkflow | None) -> None:
    if spec is not None:
        await check_fit(spec, run_id, log, client.clock)


def _append(
    client: Client,
    run_id: RunId,
    log: Sequence[e.Event],
    found: RewindPlan,
    cause: str,
    spec: SpecWorkflow | None,
    hold: RewindHold,
    nonce: str,
    at: float,
) -> Appended:
    """The events to append: the claim, the end of our hold, the branch, and what the run is bound to from there on."""
    state = fold(run_id, log)
    before: list[e.Body] = [e.Claimed(runner=client.actor, cause="requested")]
    unread = hold.unread(state)
    if unread is not None:
        before.append(e.MessageRefused(message=unread, reason="it was not needed: the run went back already"))
    if hold.is_ours(state) or (state.pause is not None and state.pause.expires_at is not None):
        # Of a hold that is not ours nothing is lost: a branch that was planned under it is refused and planned again.
        # A client that gave up in between left it, and a run that is paused is woken by a message alone.
        before.append(e.Resumed(by=client.actor))
    jump, branch = found.events(cause, client.actor)
    bodies: list[e.Body] = [*before, jump, branch]
    if spec is not None and spec.version != state.version:
        bodies.append(e.VersionBound(version=spec.version, previous=state.version, detail="by --spec"))
    return append(run_id, log, bodies, at, nonce)
