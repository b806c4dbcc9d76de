"""Evidence: gathers the facts about runs from a store. The one place that does, for the command line, API and page.

Invariants: a look changes nothing. A read that fails raises. Only a log that breaks its own rules becomes a fact
(`unreadable`), since a person must be able to see that run too. The log is read first, then the holder, then the
runners: a runner that registers in between is still found, and a concurrent append fences our commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from buoy.core.batch.allocations import live_count
from buoy.core.diagnosis.document_drift import difference, log_gone_text
from buoy.core.diagnosis.facts import (
    Facts,
    Milestones,
    StoreFacts,
    TaskFacts,
    TaskState,
    milestones_of,
    task_ended,
)
from buoy.core.diagnosis.health import TROUBLES, Health, judge
from buoy.core.explain.store import refusal_text
from buoy.core.limits import INBOX_PAGE
from buoy.core.log.document import Document, document
from buoy.core.log.events import LOT_WORKFLOW, Event
from buoy.core.log.state import State, fold
from buoy.core.times import StoreTime, run_time
from buoy.engine.read_log import read_log, unread_inbox
from buoy.errors import CorruptLog
from buoy.ports.maintenance import StoreCheck
from buoy.ports.records import Message, RunRecord
from buoy.ports.store import Store
from buoy.recovery.fleet import Fleet, read_fleet

# A run may move while it is read. A log that stood still between two looks has ended there.
_LOOKS = 20


async def store_facts(store: Store) -> StoreFacts | None:
    """Whether the store takes data now, by an attempt that leaves nothing behind."""
    found = await store.integrity.refusal()
    if found is None:
        return None
    return StoreFacts(cause=found.cause, place=found.place, detail=found.detail, free_bytes=found.free_bytes)


async def store_trouble(store: Store) -> str | None:
    """What is wrong with the store for all who use it, in one line."""
    found = await store_facts(store)
    return None if found is None or found.cause == "not_permitted" else refusal_text(found)


async def writes_check(store: Store) -> list[StoreCheck]:
    """A failed check if the store takes no data now, unless a check of the store's own tells that already."""
    found = await store_facts(store)
    if found is None or found.cause in ("not_permitted", "no_replica", "standby"):
        return []
    return [StoreCheck("writes", False, refusal_text(found), by_person=True)]


async def facts_of_page(
    store: Store, fleet: Fleet, records: Sequence[RunRecord], *, stale_after_s: float | None = None
) -> list[Facts]:
    """The facts about many runs, from their documents alone: no log is read.

    Of a batch run that no live runner could take the inbox is read, too: it can hold facts about allocations that no
    owner has read yet.
    """
    now = await store.now()
    found = [await _with_allocations(store, _facts(record, fleet, now)) for record in records]
    return found if stale_after_s is None else [replace(each, stale_after_s=stale_after_s) for each in found]


async def _with_allocations(store: Store, facts: Facts) -> Facts:
    """With the allocations from which the next runner of a stalled batch run, or of a lot of one, may come."""
    document = facts.document
    lot = document.workflow == LOT_WORKFLOW and document.parent is not None
    if not (lot or document.placement == "batch") or judge(facts).health is not Health.STALLED:
        return facts
    if lot and document.parent is not None:
        parent = await store.run(document.parent.run)
        if parent is None:
            return facts
        document = parent.document
    unread = await store.inbox(document.run_id, document.consumed_count, INBOX_PAGE)
    return replace(facts, allocations=live_allocations(document, unread), notes_only=not lot and _notes_only(unread))


def _notes_only(unread: Sequence[Message]) -> bool:
    return bool(unread) and all(each.kind == "cluster" for each in unread)


def live_allocations(document: Document, messages: Iterable[Message]) -> int:
    """The allocations of a batch run that have not ended, by its document and the messages that it has not read."""
    return live_count(document, [each.body for each in messages if each.kind == "cluster"])


async def facts_of_run(
    store: Store,
    fleet: Fleet,
    record: RunRecord,
    *,
    stale_after_s: float | None = None,
    stream_open: bool | None = None,
) -> tuple[Facts, State | None]:
    """All the facts about one run, its log included, and the folded log."""
    run_id = record.document.run_id
    try:
        log, record = await _log_and_record(store, record)
        if not log and record.envelope.orchestrator_task_id is not None:
            raise CorruptLog(log_gone_text(record.document.head_seq))
        state = fold(run_id, log)
        folded = None if state.created is None else document(state)
    except CorruptLog as error:
        record = await store.run(run_id) or record
        now = await store.now()
        facts = _facts(record, await _with(fleet, store, record), now, unreadable=str(error))
        return replace(facts, stale_after_s=stale_after_s), None
    fleet = await _with(fleet, store, record)
    inbox = await unread_inbox(store, run_id, state.consumed)
    now = await store.now()
    facts = _facts(record, fleet, now, folded, milestones_of(log))
    facts = _with_log(facts, record, log, state, folded, inbox, _clock_of(record, fleet, folded))
    facts = replace(facts, stale_after_s=stale_after_s, stream_open=stream_open)
    facts = await _with_allocations(store, facts) if facts.document.workflow == LOT_WORKFLOW else facts
    if folded is None or folded.ended:
        return facts, state
    return await _with_surroundings(store, fleet, facts, state, now), state


async def _log_and_record(store: Store, record: RunRecord) -> tuple[list[Event], RunRecord]:
    """A log, and a record that was read after it. A record that is ahead because the run moved is read again."""
    run_id = record.document.run_id
    log: list[Event] = []
    for look in range(_LOOKS):
        more = await read_log(store, run_id, after=len(log))
        if look and not more and record.document.head_seq > len(log):
            break  # it was ahead before this look too, and nothing has come: the log ends here
        log += more
        record = await store.run(run_id) or record
        if record.document.head_seq <= len(log):
            break
    return log, record


async def _with(fleet: Fleet, store: Store, record: RunRecord) -> Fleet:
    """The runners, read again if the holder may have registered after the last read."""
    if record.holder is None or record.holder in fleet.all or record.holder in fleet.strangers:
        return fleet
    newer = await read_fleet(store, fleet.liveness)
    if record.holder not in newer.all:
        fleet.strangers.add(record.holder)
    return newer


def _with_log(
    facts: Facts,
    record: RunRecord,
    log: list[Event],
    state: State,
    folded: Document | None,
    inbox: list[Message],
    as_run_time: Callable[[StoreTime], float],
) -> Facts:
    # Imported here, and below: a list of runs asks for no surroundings, and these load the engine.
    from buoy.recovery.surroundings import unread_messages

    unread = unread_messages(inbox, state, as_run_time)
    task = facts.task
    if task is not None and task.state == "missing" and task_ended(log):
        task = replace(task, state="ended")
    return replace(
        facts,
        task=task,
        log=tuple(log),
        stored=record.document,
        foreign=folded is None,
        unread=len(unread),
        allocations=0 if folded is None else live_allocations(folded, inbox),
        notes_only=_notes_only(inbox),
        messages=unread,
        drift=None if folded is None else difference(record.document, folded),
    )


async def _with_surroundings(store: Store, fleet: Fleet, facts: Facts, state: State, now: StoreTime) -> Facts:
    from buoy.recovery.surroundings import DefinitionsRead, children_of, definitions_of

    children = await children_of(store, state)
    # Planning a large spec takes a while, and no rule needs the plan under a live owner.
    known = DefinitionsRead("unknown", "unknown") if facts.live_owner else await definitions_of(store, state)
    troubles = {
        child: text for child, found in children.items() if (text := _trouble_of(fleet, found, now)) is not None
    }
    return replace(
        facts,
        children={child: _child_status(found) for child, found in children.items()},
        child_troubles=troubles,
        definition=known.current,
        initial_definition=known.initial,
        needs=known.needs,
        calls=known.calls,
    )


def _child_status(child: RunRecord | None) -> str:
    if child is None:
        return "absent"
    return "ending" if child.document.ended and child.has_task else child.document.status


def _trouble_of(fleet: Fleet, child: RunRecord | None, now: StoreTime) -> str | None:
    """Why a child does not move, from its document alone."""
    if child is None:
        return None
    facts = _facts(child, fleet, now)
    verdict = judge(facts)
    if verdict.health in TROUBLES:
        return f"{verdict.health}: {verdict.reasons[0]}"
    pause = child.document.pause
    return None if pause is None else f"paused: {pause.reason}{f' ({pause.detail})' if pause.detail else ''}"


def _facts(
    record: RunRecord,
    fleet: Fleet,
    now: StoreTime,
    current: Document | None = None,
    milestones: Milestones | None = None,
    unreadable: str | None = None,
) -> Facts:
    shown, as_run_time = current or record.document, _clock_of(record, fleet, current)
    held = None if shown.ended else record.holder
    return Facts(
        document=shown,
        now=as_run_time(now),
        holder=None if held is None else fleet.get(held),
        due_at=None if record.due_at is None else as_run_time(record.due_at),
        runners=fleet.living,
        progress=None if held is None else fleet.progress(held, shown.run_id),
        milestones=milestones or Milestones(),
        unreadable=unreadable,
        task=_task(record),
    )


def _clock_of(record: RunRecord, fleet: Fleet, current: Document | None) -> Callable[[StoreTime], float]:
    """Converts a time of the store to the clock of the run's last writer."""
    # A store without a clock has only its writers' times, so there is nothing to convert.
    dated = current if current is not None and fleet.has_clock else record.document
    return partial(run_time, taken_at=record.updated_at, dated_at=dated.updated_at)


def _task(record: RunRecord) -> TaskFacts:
    state: TaskState = "parked"
    if record.holder is not None:
        state = "held"
    elif not record.has_task:
        state = "missing"
    elif record.due_at is not None:
        state = "due"
    return TaskFacts(record.envelope.orchestrator_task_id or "", record.envelope.generation, state)
