"""Requests without an owner: what a sender may record itself while no runner drives the run.

Invariant: a sender does so only if no user code needs to run, and always as claim, request and release in one commit.
If an unknown owner is alive after all, that commit fails and the request goes through the inbox.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from buoy.core.batch.jobs import open_lots
from buoy.core.diagnosis.facts import RunnerFacts
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import RESTING, Status
from buoy.core.log.pause import CODE_REASONS
from buoy.core.log.state import State, fold
from buoy.core.spec.model import is_spec, knows
from buoy.engine.read_log import read_log, unread_inbox
from buoy.engine.run.mailbox import CONTROL, Reason
from buoy.engine.run.owed import duties_of, gives_up_children
from buoy.engine.run.run_time import run_now
from buoy.engine.run.unclaimed_lots import end_lot, is_unclaimed_lot
from buoy.engine.services.commits import commit_surely, write_of
from buoy.errors import StoreUnusable, Unavailable, WrongState
from buoy.ports.records import Ended, Released, RunnerRecord, RunRecord, TaskChange

if TYPE_CHECKING:
    from buoy.engine.client.client import Client


class Requested(msgspec.Struct, frozen=True):
    """`done`: it has happened. Else it is stored, and `text` says who will handle it."""

    done: bool
    text: str


async def live_runners(client: Client) -> list[RunnerRecord]:
    """The runners that are not known to be gone."""
    records = await client.store.runners()
    sights = await client.liveness.look(records)
    return [each for each in records if sights[each.info.id].proof is None]


async def driven(client: Client, record: RunRecord) -> bool:
    """Whether a runner that is not known to be gone holds the run."""
    return any(each.info.id == record.holder for each in await live_runners(client))


async def waits_for_whom(client: Client, run: RunRecord | str) -> str:
    """Words for the process that will handle a request, which is stored by now."""
    return await _words(_handler(client, run))


async def _words(known: Awaitable[str]) -> str:
    """The request is stored. A store that does not answer any more must not make it look as if it were not."""
    try:
        return await known
    except (Unavailable, StoreUnusable) as error:
        return f"which process will handle it is not known ({error})"


async def _handler(client: Client, run: RunRecord | str) -> str:
    record = await client.record(run) if isinstance(run, str) else run
    doc = record.document
    runners = await live_runners(client)
    if any(each.info.id == record.holder for each in runners):
        return f"runner {record.holder} drives the run and will handle it"
    if doc.placement == "batch":
        if any(knows(each.info.workflows, doc.workflow) and doc.workflow not in each.info.unable for each in runners):
            return "a live runner will take the run and handle it"
        return f"no live runner serves the run: start one with `buoy runner --run {doc.run_id}`"
    missing = what_is_missing(doc, [_facts(each) for each in runners])
    if missing is None:
        return "a live worker will take the run and handle it"
    code = "" if is_spec(doc.workflow) else " FILE.py"
    return f"{missing}; start one with `buoy worker{code}`"


def _facts(runner: RunnerRecord) -> RunnerFacts:
    """What decides which runs it takes. A worker that is stopping serves no queue."""
    info = runner.info
    return RunnerFacts(
        id=info.id,
        role=info.role,
        queues=info.queues,
        workflows=info.workflows,
        tends=info.tends,
        unable=info.unable,
        stack=info.stack,
        env=info.env,
    )


async def cancel_waits_for(client: Client, record: RunRecord) -> str:
    """Words for what has to happen before a request to cancel takes effect, which is stored by now."""
    return await _words(_canceller(client, record))


async def _canceller(client: Client, record: RunRecord) -> str:
    doc, runners = record.document, await live_runners(client)
    held = any(each.info.id == record.holder for each in runners)
    if (
        doc.pause is None
        or doc.pause.reason not in CODE_REASONS
        or held
        or any(_has_code(each, doc) for each in runners)
    ):
        return await _handler(client, record)
    return (
        "the run needs its code to undo what it has done, and no live worker has code that fits it; it is cancelled as "
        f"soon as one has: see `buoy why {doc.run_id}`"
    )


async def check_pause(client: Client, doc: Document, kind: str) -> None:
    """Refuses to pause a paused run, or to resume one that is not paused. What its owner has not read yet counts: a
    resume after an unread pause would otherwise be refused, and the run would pause after it."""
    paused = doc.pause is not None
    if kind == "cancel" or paused is not (kind == "pause"):
        return
    if await unread_pause(client, doc.run_id) not in (None, kind):
        return
    raise WrongState(f"run {doc.run_id} is {'paused already' if paused else f'not paused, it is {doc.status}'}")


async def unread_pause(client: Client, run_id: RunId) -> str | None:
    """The last request to pause or to resume that the run has not consumed."""
    consumed = fold(run_id, await read_log(client.store, run_id)).consumed
    unread = await unread_inbox(client.store, run_id, consumed)
    kinds = [each.kind for each in unread if each.number not in consumed]
    return next((each for each in reversed(kinds) if each in ("pause", "resume")), None)


async def direct_request(client: Client, record: RunRecord, kind: str, body: Reason) -> Requested | None:
    """Records the request at once if the run has no driver and needs no code; None: send it through the inbox."""
    doc = record.document
    quiet = doc.status in RESTING or doc.status in (Status.PENDING, Status.PAUSED, Status.INTERRUPTED)
    if not quiet or await _somebody_will(client, record, kind):
        return None
    log = await read_log(client.store, doc.run_id)
    state = fold(doc.run_id, log)
    unread = await unread_inbox(client.store, doc.run_id, state.consumed)
    if any(each.kind in CONTROL and each.number not in state.consumed for each in unread):
        return None  # requests count in their order: this one must not overtake those
    compensated = any(isinstance(each.body, e.StepStarted) and each.body.compensate for each in log)
    if state.head_seq != doc.head_seq or (kind == "cancel" and compensated):
        return None
    if kind == "pause" and gives_up_children(state):
        return None  # no runner takes a paused run, and the last one may have died before it told them
    bodies: list[e.Body] = [e.Claimed(runner=client.actor, cause="requested")]
    at, now = await run_now(client.store, client.clock, doc.run_id, state.updated_at), client.clock.now()
    # `seen` stays as it is: this sender consumed no message, and must not hide messages from the next owner.
    change: TaskChange = Released(due_at=None, now=now, cause="resumed")
    match kind:
        case "pause":
            bodies.append(e.Paused(reason="user", detail=body.reason, by=client.actor))
        case "resume":
            bodies.append(e.Resumed(by=client.actor, version=body.version))
            change = Released(due_at=now, now=now, cause="resumed")
        case _:
            bodies.append(e.CancelRequested(reason=body.reason, by=client.actor))
            cancelled = e.WorkflowCancelled(reason=body.reason)
            bodies.append(cancelled)
            # The runner that takes the task performs what the ended run owes to others (a message to its parent, for
            # example).
            owes = bool(duties_of(state, cancelled))
            change = Released(due_at=now, now=now, cause="requested") if owes else Ended()
    new = append(doc.run_id, log, bodies, at, client.ids.nonce())
    if not await commit_surely(client.store, write_of(new, change)):
        return None
    if kind == "cancel" and doc.placement == "batch":
        await _end_lots(client, state)
    return Requested(done=True, text=f"run {doc.run_id} is {new.state.status}")


async def _end_lots(client: Client, state: State) -> None:
    """Ends the lots of a cancelled run that no living runner has. The others learn it from the run's next owner."""
    for child in open_lots(state).values():
        record = await client.store.run(child)
        if record is not None and record.holder is not None and not await driven(client, record):
            record = msgspec.structs.replace(record, holder=None)
        if is_unclaimed_lot(record):
            await end_lot(client.store, client.clock, client.ids, child, client.actor)


async def _somebody_will(client: Client, record: RunRecord, kind: str) -> bool:
    """Whether a live runner holds the run, or (for a cancellation, whose clean-up code should run) could take it."""
    runners = await live_runners(client)
    if any(each.info.id == record.holder for each in runners):
        return True
    able = any(_has_code(each, record.document) for each in runners)
    return kind == "cancel" and able and not _untouched(record.document)


def _has_code(runner: RunnerRecord, doc: Document) -> bool:
    """Whether the runner can execute the run's code. For a run that was paused for its code, only the bound version
    can: any other one leads to the same pause."""
    if doc.pause is None or doc.pause.reason not in CODE_REASONS:
        return knows(runner.info.workflows, doc.workflow)
    return doc.pause.reason == "version" and doc.version in runner.info.workflows.get(doc.workflow, ())


def _untouched(doc: Document) -> bool:
    """Whether the run has nothing to clean up: it is queued, or was paused before its first leaf."""
    leaves = doc.open_count + doc.completed_count + doc.failed_count
    return doc.status is Status.PENDING or (doc.status is Status.PAUSED and not leaves and not doc.branch)
