"""Copying runs: moves runs, with their families and ids, from one store to another.

Order: every run of a family is fenced in the source by the commit that says where it went (`moved`); then all of them
are brought into the target on hold; then they continue there. So no run executes in two places, and no parent misses a
child. Invariants: a copy that was cut off anywhere is completed by the same call. Of two copies to different targets
one wins each run. What is checked before the first fence changes nothing.
Absent on purpose: clocks. The hold bears the run's own last time, so that a repeated copy is the same one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Literal

import msgspec

from buoy.core.bundle.checks import check, versions
from buoy.core.bundle.format import HOLD_NONCE
from buoy.core.ids import RunId, check_run_id
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.codec import encode_events
from buoy.core.log.document import document
from buoy.core.log.state import State, fold
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.engine.services.commits import commit_surely, send_surely, write_of
from buoy.errors import BadInput, CorruptLog, UnknownRun, WrongState
from buoy.operations.maintenance.bundles import export_run
from buoy.ports.maintenance import RunCopy
from buoy.ports.records import Ended, Message, RunQuery

# A run whose owner appends all the time may win some races against the fence; its owner is then fenced next.
FENCE_TRIES_MAX = 100
PAGE = 100
_LASTING = ("user", "hold")


class CopiedRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What became of one run. `complete`: it was in the target already, whole.

    `elsewhere`: it moved to another store before. `left`: only others of its family did; its place is undecided.
    """

    run_id: RunId
    state: Literal["would_move", "moved", "complete", "elsewhere", "left"]
    events: int
    messages: int
    # The other store that it, or a part of its family, moved to.
    to: str | None = None


class _Fenced(msgspec.Struct, frozen=True):
    run_id: RunId
    log: tuple[e.Event, ...]
    generation: int


class _MovedElsewhere(WrongState):
    """Another copy has won the run for another store."""

    def __init__(self, run_id: RunId, to: str) -> None:
        super().__init__(f"run {run_id} has moved to {to} already; copy it from there")
        self.to = to


async def copy_run(source: Client, target: Client, run_id: str, *, dry_run: bool = False) -> list[CopiedRun]:
    """Moves one run with its family: its ancestors, their children, and the runs that they continued as."""
    refuse_same(source, target)
    family = await _family(source, check_run_id(run_id))
    for member in family:
        await _check(source, target, member)
    if dry_run:
        whole = {member: await _is_whole(source, target, member) for member in family}
        return [await _copied(source, each, "complete" if done else "would_move") for each, done in whole.items()]
    fenced = [await _fence(source, target, member) for member in family]
    new = {each.run_id: await _bring(source, target, each) for each in fenced}
    copied = []
    for each in fenced:
        sent = await _forward(source, target, each.run_id)
        resumed = await _let_go(target, each)
        moved = new[each.run_id] or sent or resumed
        copied.append(await _copied(source, each.run_id, "moved" if moved else "complete"))
    return copied


async def copy_all(source: Client, target: Client, *, dry_run: bool = False) -> AsyncIterator[CopiedRun]:
    """Moves every run, family by family. A family that moved elsewhere before is left there."""
    refuse_same(source, target)
    done: set[RunId] = set()
    cursor: str | None = None
    while True:
        page = await source.store.find_runs(RunQuery(), cursor, PAGE)
        for record in page.runs:
            run_id = record.document.run_id
            if run_id not in done:
                try:
                    family = await copy_run(source, target, run_id, dry_run=dry_run)
                except _MovedElsewhere as error:
                    family = await _left_family(source, run_id, error.to)
                for copied in family:
                    if copied.run_id not in done:
                        done.add(copied.run_id)
                        yield copied
        cursor = page.cursor
        if cursor is None:
            return


async def _left_family(source: Client, run_id: RunId, to: str) -> list[CopiedRun]:
    """A run's family, of which one has moved to that other store."""
    found = []
    for member in await _family(source, run_id):
        moved_to = (await source.record(member)).document.moved_to
        copied = await _copied(source, member, "elsewhere" if moved_to else "left")
        found.append(msgspec.structs.replace(copied, to=moved_to or to))
    return found


def refuse_same(source: Client, target: Client) -> None:
    """Refuses a copy of a store onto itself."""
    if source.store.name == target.store.name:
        raise BadInput(f"source and target are the same store: {source.store.name}; name two stores")


async def _family(source: Client, run_id: RunId) -> list[RunId]:
    """The run's first ancestor that is still there, and all that descends from it; parents before children."""
    if await source.store.run(run_id) is None:
        raise UnknownRun(f"there is no run {run_id} in {source.store.name}; `buoy ps --all` lists them")
    root = run_id
    while (record := await source.store.run(root)) is not None and record.document.parent is not None:
        if await source.store.run(record.document.parent.run) is None:
            break
        root = record.document.parent.run
    family = [root]
    for each in family:
        for event in await read_log(source.store, each):
            for other in _relatives(event.body):
                if other not in family and await source.store.run(other) is not None:
                    family.append(other)
    return family


def _relatives(body: e.Body) -> list[RunId]:
    if isinstance(body, e.ChildStarted):
        return [body.child]
    if isinstance(body, e.WorkflowCompleted) and body.continued_as is not None:
        return [body.continued_as]
    return []


async def _check(source: Client, target: Client, run_id: RunId) -> None:
    """Refuses what could not be brought into the target, before anything is changed."""
    log = await read_log(source.store, run_id)
    moved = log[-1].body if log else None
    if isinstance(moved, e.Moved):
        if moved.to != target.store.name:
            raise _MovedElsewhere(run_id, moved.to)
        return
    bundle = await export_run(source, run_id)
    found = check(bundle)
    wrong = [*found.texts("wrong"), *found.texts("doubtful")]
    if wrong:
        raise WrongState(f"run {run_id} cannot be copied as it is: {wrong[0]}; `buoy recover {run_id}` first")
    if await target.store.run(run_id) is not None or await target.store.archive.tombstone(run_id) is not None:
        raise WrongState(f"{target.store.name} has a run {run_id} already; nothing was copied")


async def _fence(source: Client, target: Client, run_id: RunId) -> _Fenced:
    """Ends the run in the source by the commit that says where it went."""
    to = target.store.name
    for _ in range(FENCE_TRIES_MAX):
        log = await read_log(source.store, run_id)
        record = await source.record(run_id)
        last = log[-1].body
        if isinstance(last, e.Moved):
            if last.to != to:
                raise _MovedElsewhere(run_id, last.to)
            return _Fenced(run_id, tuple(log[:-1]), record.envelope.generation)
        made = append(run_id, log, [e.Moved(to=to, by=source.actor)], source.clock.now(), source.ids.nonce())
        if await commit_surely(source.store, write_of(made, Ended())):
            return _Fenced(run_id, tuple(log), record.envelope.generation)
    raise WrongState(f"run {run_id} was appended to {FENCE_TRIES_MAX} times by others; stop its worker and copy again")


async def _bring(source: Client, target: Client, fenced: _Fenced) -> bool:
    """Stores the run in the target, on hold unless it rests anyway. False: it is there already, whole.

    A copy that was cut off may have left a run whose inbox is not complete: the same import completes it.
    """
    messages = tuple(await source.store.inbox(fenced.run_id))
    if await _is_there(target, fenced) and await _has_messages(target, fenced.run_id, messages):
        return False
    for version in versions(fenced.log):
        data = await source.store.definition(version)
        if data is not None:
            await target.store.define(version, data)
    state = fold(fenced.run_id, fenced.log)
    added = _hold(source, state, fenced)
    for event in added:
        state.apply(event)
    copy = RunCopy(
        id=sha256(encode_events((*fenced.log, *added))).hexdigest()[:24],
        document=document(state),
        events=(*fenced.log, *added),
        messages=messages,
        generation=min(max(fenced.generation, 1), len(fenced.log)),
    )
    if await target.store.archive.import_run(copy):
        return True
    if not await _is_there(target, fenced):
        raise WrongState(f"{target.store.name} has another run {fenced.run_id}; look at both")
    return False


async def _is_whole(source: Client, target: Client, run_id: RunId) -> bool:
    """Whether a copy has nothing left to do for this run."""
    log = await read_log(source.store, run_id)
    if not isinstance(log[-1].body, e.Moved):
        return False
    fenced = _Fenced(run_id, tuple(log[:-1]), 1)
    messages = tuple(await source.store.inbox(run_id))
    there = await _is_there(target, fenced) and await _has_messages(target, run_id, messages)
    return there and not await _holds(target, fenced)


async def _is_there(target: Client, fenced: _Fenced) -> bool:
    if await target.store.run(fenced.run_id) is None:
        return False
    there = await read_log(target.store, fenced.run_id)
    if tuple(there[: len(fenced.log)]) != fenced.log:
        raise WrongState(f"{target.store.name} has another run {fenced.run_id}; look at both")
    return True


async def _has_messages(target: Client, run_id: RunId, messages: tuple[Message, ...]) -> bool:
    try:
        there = {each.dedupe for each in await target.store.inbox(run_id)}
    except CorruptLog:
        return False
    return all(each.dedupe in there for each in messages)


def _hold(source: Client, state: State, fenced: _Fenced) -> list[e.Event]:
    if document(state).ended or (state.pause is not None and state.pause.reason in _LASTING):
        return []
    bodies: list[e.Body] = [] if state.pause is None else [e.Resumed(by="copy")]
    bodies.append(e.Paused(reason="hold", detail=f"it is being copied from {source.store.name}", by="copy"))
    name = f"{HOLD_NONCE}{sha256(encode_events(fenced.log)).hexdigest()[:24]}"
    return [
        e.Event(
            state.head_seq + place,
            state.updated_at,
            body,
            state.branch,
            e.VERSIONS.get(type(body), 1),
            name if place == 1 else None,
        )
        for place, body in enumerate(bodies, 1)
    ]


async def _forward(source: Client, target: Client, run_id: RunId) -> int:
    """Sends what reached the source after its inbox was read. Dedupe ids make a repeated copy send nothing twice."""
    known = {each.dedupe for each in await target.store.inbox(run_id)}
    late = [each for each in await source.store.inbox(run_id) if each.dedupe not in known]
    for message in late:
        await send_surely(target.store, msgspec.structs.replace(message, number=0))
    return len(late)


async def _let_go(target: Client, fenced: _Fenced) -> bool:
    """Ends the hold of the copy, and no other one."""
    held = await _holds(target, fenced)
    if held:
        await target.resume(fenced.run_id)
    return held


async def _holds(target: Client, fenced: _Fenced) -> bool:
    """Whether the hold of the copy is the last that happened to the run in the target."""
    there = (await read_log(target.store, fenced.run_id))[len(fenced.log) :]
    ours = bool(there) and there[0].nonce is not None and there[0].nonce.startswith(HOLD_NONCE)
    return ours and isinstance(there[-1].body, e.Paused) and len(there) <= 2


async def _copied(
    source: Client, run_id: RunId, state: Literal["would_move", "moved", "complete", "elsewhere", "left"]
) -> CopiedRun:
    record = await source.record(run_id)
    moved = 1 if record.document.moved_to is not None else 0
    messages = await source.store.inbox(run_id)
    return CopiedRun(run_id=run_id, state=state, events=record.document.head_seq - moved, messages=len(messages))
