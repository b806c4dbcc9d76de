"""Bundles: takes a run out of a store as one file, and brings such a file into a store.

Invariants: an export changes nothing. An import executes nothing: an event holds a run that has not ended until a
person resumes it, so no sweeper recovers it. A wrong bundle is refused whole. A doubtful one is imported on request, on
hold. A second import of the same bundle has no effect.
An incident may be brought as it was found: document, envelope and task as the file has them, nothing added, so that it
can be diagnosed and recovered elsewhere. Then workers and sweepers take it for what it is.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from buoy.core.bundle.as_found import check_found
from buoy.core.bundle.checks import Checked, check, versions
from buoy.core.bundle.format import (
    HOLD_NONCE,
    Bundle,
    BundleEnvelope,
    BundleMessage,
    BundleTask,
    digest,
    found_task,
    without_hold,
)
from buoy.core.ids import RunId, RunnerId, orchestrate_task_id
from buoy.core.log import events as e
from buoy.core.log.codec import encode_events
from buoy.core.log.document import Document, document
from buoy.core.log.state import State, fold
from buoy.core.log.wording import counted
from buoy.core.times import StoreTime
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import BadInput, WrongState
from buoy.ports.maintenance import RunCopy, TaskFound
from buoy.ports.records import Message, RunRecord

# Pauses of these kinds last until a person ends them; others may end by themselves.
_LASTING = ("user", "hold")


class Imported(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an import did. `new`: the run was not there before."""

    run_id: RunId
    status: str
    new: bool
    events: int
    messages: int
    held: bool = False
    resumed: bool = False
    # The run of the bundle is here, and has moved on since: how many events it has now.
    continued: int = 0
    # As it was found: what became of its task.
    task: str | None = None
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def export_run(client: Client, run_id: str, *, as_found: bool = False) -> Bundle:
    """The run as it is now. The inbox is read after the log, so that it has every message that the log consumed.

    `as_found`: with its document and task just as the store has them, however they disagree with the log.
    """
    record = await client.record(run_id)
    checked = record.document.run_id
    whole = tuple(await read_log(client.store, checked))
    inbox = await client.store.inbox(checked)
    log = whole if as_found else without_hold(whole)
    folded = record.document if as_found and not log else document(fold(checked, log))
    # A document that disagrees is part of the incident; one that is only older or newer than what was read is not.
    kept = record.document if as_found or record.document.head_seq == len(log) else folded
    generation, task_id = record.envelope.generation, record.envelope.orchestrator_task_id
    return Bundle(
        run_id=checked,
        log=log,
        inbox=tuple(map(_bundled, inbox)),
        document=msgspec.Raw(msgspec.json.encode(kept)),
        envelope=BundleEnvelope(generation, task_id),
        tasks=_tasks(record, folded, as_found=as_found),
        definitions=await _definitions(client, log),
    )


def _bundled(message: Message) -> BundleMessage:
    sent_at = float(message.sent_at)
    return BundleMessage(message.number, message.kind, message.dedupe, message.body, sent_at, message.by)


def _tasks(record: RunRecord, folded: Document, *, as_found: bool) -> tuple[BundleTask, ...]:
    task_id = orchestrate_task_id(folded.run_id, record.envelope.generation)
    task = BundleTask(task_id, folded.workflow, folded.queue, folded.stack, folded.env)
    if not as_found:
        return () if folded.ended else (task,)
    if record.holder is not None:
        return (msgspec.structs.replace(task, state="held", holder=record.holder),)
    if record.due_at is not None:
        return (msgspec.structs.replace(task, state="due", due_at=record.due_at),)
    return (msgspec.structs.replace(task, state="parked"),) if record.has_task else ()


async def _definitions(client: Client, log: tuple[e.Event, ...]) -> dict[str, msgspec.Raw]:
    found = {version: await client.store.definition(version) for version in versions(log)}
    return {version: msgspec.Raw(data) for version, data in found.items() if data is not None}


async def import_run(
    client: Client, bundle: Bundle, *, quarantine: bool = False, resume: bool = False, as_found: bool = False
) -> Imported:
    """Brings a run into the store of this client, on hold unless it has ended. `resume` continues it afterwards.

    `as_found`: with its document, envelope and task as the bundle has them, however they disagree.
    """
    if quarantine + resume + as_found > 1:
        raise BadInput("quarantine holds a run, resume continues it, as_found does neither; choose one")
    if as_found:
        return await _import_found(client, bundle)
    found = check(bundle)
    doubts = found.texts("doubtful")
    _refuse_wrong(bundle, found)
    assert found.state is not None
    moved_to = await _moved_on(client, bundle)
    if moved_to:
        return msgspec.structs.replace(await _imported(client, bundle, found, new=False), continued=moved_to)
    if doubts and not quarantine:
        raise BadInput(
            f"the bundle of {bundle.run_id} is doubtful, nothing was imported: {_few(doubts)}; "
            "look at it on hold with --quarantine"
        )
    name = digest(bundle)
    events, there = await _events(client, bundle, found.state, doubts, name)
    new = await _bring(client, bundle, _copy(bundle, events, found.state, name)) and not there
    if not new:
        await _check_same(client, bundle)
    resumed = resume and not doubts and await _resume(client, bundle)
    return await _imported(client, bundle, found, new=new, resumed=resumed)


async def _import_found(client: Client, bundle: Bundle) -> Imported:
    found = check_found(bundle)
    _refuse_wrong(bundle, found.checked)
    assert found.document is not None
    there = await client.store.run(bundle.run_id)
    if there is None:
        task = _task_found(await client.store.now(), bundle, found.document)
        copy = RunCopy(
            id=sha256(b"as found" + digest(bundle).encode()).hexdigest()[:24],
            document=found.document,
            events=bundle.log,
            messages=_messages(bundle),
            generation=bundle.envelope.generation,
            found=task,
        )
        if await _bring(client, bundle, copy):
            return await _imported(client, bundle, found.checked, new=True, task=task.state)
    if not bundle.log and (await client.record(bundle.run_id)).document != found.document:
        raise WrongState(f"run {bundle.run_id} exists already in {client.store.name} and differs; use another store")
    await _check_same(client, bundle)
    return await _imported(client, bundle, found.checked, new=False)


def _refuse_wrong(bundle: Bundle, checked: Checked) -> None:
    wrong = checked.texts("wrong")
    if wrong:
        raise BadInput(f"the bundle of {bundle.run_id} is wrong, nothing was imported: {_few(wrong)}")


async def _bring(client: Client, bundle: Bundle, copy: RunCopy) -> bool:
    for version, data in bundle.definitions.items():
        await client.store.define(version, bytes(data))
    return await client.store.archive.import_run(copy)


async def _imported(
    client: Client, bundle: Bundle, checked: Checked, *, new: bool, resumed: bool = False, task: str | None = None
) -> Imported:
    record = await client.record(bundle.run_id)
    return Imported(
        run_id=bundle.run_id,
        status=record.document.status,
        new=new,
        events=len(bundle.log),
        messages=len(bundle.inbox),
        held=record.document.pause is not None and record.document.pause.reason == "hold",
        resumed=resumed,
        task=task,
        doubts=tuple(checked.texts("doubtful")),
        notes=tuple(checked.texts("noted")),
    )


def _task_found(now: StoreTime, bundle: Bundle, kept: Document) -> TaskFound:
    """The task as the bundle has it; as the log asks for it if the bundle does not say."""
    if not bundle.log:
        return TaskFound("missing")
    if bundle.tasks is None:
        waits = kept.ended or kept.pause is not None
        return TaskFound("missing" if kept.ended else "parked") if waits else TaskFound("due", due_at=now)
    task = found_task(bundle)
    if task is None:
        return TaskFound("missing")
    state = task.state or ("due" if task.holder is None else "held")
    due_at = (now if task.due_at is None else StoreTime(task.due_at)) if state == "due" else None
    return TaskFound(state, None if task.holder is None else RunnerId(task.holder), due_at)


async def _events(
    client: Client, bundle: Bundle, state: State, doubts: list[str], name: str
) -> tuple[tuple[e.Event, ...], bool]:
    """What the log will be, and whether it is there already. A repeated import must not differ in the hold's time."""
    if await client.store.run(bundle.run_id) is None:
        return (*bundle.log, *_hold(client, state, doubts, name)), False
    there = tuple(await read_log(client.store, bundle.run_id))
    if without_hold(there) != bundle.log:
        raise WrongState(
            f"run {bundle.run_id} exists already in {client.store.name}, with another log "
            f"({counted(len(there), 'event')}, the bundle has {len(bundle.log):,}); nothing was changed"
        )
    return there, True


async def _moved_on(client: Client, bundle: Bundle) -> int:
    """How many events the run has, if this bundle was imported before and something has happened since."""
    if await client.store.run(bundle.run_id) is None:
        return 0
    there, length = tuple(await read_log(client.store, bundle.run_id)), len(bundle.log)
    if without_hold(there) == bundle.log or there[:length] != bundle.log:
        return 0
    # The hold of an import names its bundle.
    ours = there[length : length + 1] and there[length].nonce == f"{HOLD_NONCE}{digest(bundle)}"
    return len(there) if ours else 0


def _hold(client: Client, state: State, doubts: list[str], name: str) -> list[e.Event]:
    """The events that keep the run from being driven; none if it has ended or is paused by a person."""
    if document(state).ended or (state.pause is not None and state.pause.reason in _LASTING):
        return []
    detail = "imported from a bundle; resume it if it may continue here and nowhere else"
    if doubts:
        detail = f"imported from a doubtful bundle: {_few(doubts)}"
    bodies: list[e.Body] = []
    if state.pause is not None:
        bodies.append(e.Resumed(by=client.actor))
        detail = f"{detail} (it was paused before: {state.pause.reason})"
    bodies.append(e.Paused(reason="hold", detail=detail, by=client.actor))
    at, nonce = max(client.clock.now(), state.updated_at), f"{HOLD_NONCE}{name}"
    return [
        e.Event(state.head_seq + place, at, body, state.branch, nonce=nonce if place == 1 else None)
        for place, body in enumerate(bodies, 1)
    ]


def _copy(bundle: Bundle, events: tuple[e.Event, ...], state: State, name: str) -> RunCopy:
    added = events[len(bundle.log) :]
    for event in added:
        state.apply(event)
    generation = min(max(bundle.envelope.generation, 1), len(bundle.log))
    return RunCopy(
        id=sha256(name.encode() + encode_events(added)).hexdigest()[:24],
        document=document(state),
        events=events,
        messages=_messages(bundle),
        generation=generation,
    )


def _messages(bundle: Bundle) -> tuple[Message, ...]:
    run_id = bundle.run_id
    return tuple(
        Message(run_id, each.kind, each.dedupe, each.body, StoreTime(each.sent_at), each.number, each.by)
        for each in bundle.inbox
    )


async def _check_same(client: Client, bundle: Bundle) -> None:
    """The run that is there must be this one. It may have been sent more messages since."""
    there = await client.store.inbox(bundle.run_id)
    known = [_bundled(each) for each in there]
    log = tuple(await read_log(client.store, bundle.run_id))
    if without_hold(log) != bundle.log or known[: len(bundle.inbox)] != list(bundle.inbox):
        raise WrongState(f"run {bundle.run_id} exists already in {client.store.name} and differs; use another store")


async def _resume(client: Client, bundle: Bundle) -> bool:
    """Continues a run that only the import holds. A run that was paused before stays paused."""
    log = await read_log(client.store, bundle.run_id)
    if len(without_hold(log)) == len(log):
        return False
    await client.resume(bundle.run_id)
    return True


def _few(texts: list[str], most: int = 3) -> str:
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {more} more" if more > 0 else "")
