"""Evidence: gathers the facts about runs from a store. The one place that does, for the command line, API and page.

Invariants: nothing is changed by looking. A read that fails raises; only a log that breaks its own rules becomes a fact
(`unreadable`), since a person must be able to see that run too. Who holds a run is read after its log, and the runners
after that: so nobody who came meanwhile is taken for a stranger, and whoever moved the run on fences what is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from buoy.core.document import Document, document
from buoy.core.drift import difference, log_gone_text
from buoy.core.events import Event
from buoy.core.explain_store import refusal_text
from buoy.core.facts import (
    Facts,
    LoopFacts,
    ProgressFacts,
    RunnerFacts,
    StoreFacts,
    Story,
    TaskFacts,
    TaskState,
    story,
    task_ended,
)
from buoy.core.health import TROUBLES, judge
from buoy.core.ids import RunId, RunnerId
from buoy.core.state import State, fold
from buoy.engine.loading import read_log
from buoy.errors import CorruptLog
from buoy.ports import Liveness, Message, RunnerRecord, RunRecord, Store

# A run may go on whenever it is looked at; one whose log stood still between two looks does not.
_LOOKS = 20


class Crew:
    """All runners of a store at one moment, each looked at once."""

    def __init__(
        self, records: Iterable[RunnerRecord], liveness: Liveness, now: float, *, keeps_time: bool = True
    ) -> None:
        self.liveness = liveness
        self._records = {record.info.id: record for record in records}
        self.all = {
            runner: _runner_facts(record, liveness, now if keeps_time or liveness.sees(record) else None)
            for runner, record in self._records.items()
        }
        self.living = tuple(each for each in self.all.values() if not each.gone)

    def get(self, runner: RunnerId) -> RunnerFacts:
        """That runner; one that the store does not know is told as such."""
        return self.all.get(runner) or RunnerFacts(id=runner, registered=False)

    def progress(self, runner: RunnerId, run_id: RunId) -> ProgressFacts | None:
        record = self._records.get(runner)
        found = None if record is None else record.beat.progress.get(run_id)
        return None if found is None else ProgressFacts(found.at, found.done, found.total, found.note, found.leaf)


async def crew(store: Store, liveness: Liveness) -> Crew:
    """The runners of that store, those that are gone too."""
    return Crew(await store.runners(gone=True), liveness, await store.now(), keeps_time=store.keeps_time)


def _runner_facts(record: RunnerRecord, liveness: Liveness, now: float | None) -> RunnerFacts:
    """`now` None: its times are those of a clock that cannot be compared with ours."""
    info = record.info
    proof = liveness.proof_of_death(record) if record.gone_at is None else None
    return RunnerFacts(
        id=info.id,
        host=info.host,
        pid=info.pid,
        role=info.role,
        beat_age_s=None if now is None or record.unreadable is not None else max(now - record.beat_at, 0.0),
        beats=record.beat.number,
        beat_at=record.beat_at,
        suspected=record.suspected_beat is not None and record.suspected_beat == record.beat.number,
        gone_why=record.gone_why if record.gone_at is not None else None,
        proof=proof,
        doubt=_doubt(record, liveness) if record.gone_at is None and proof is None else None,
        stopped=record.gone_at is None and liveness.stopped(record),
        loop=_loop(record, 0.0 if now is None else max(now - record.beat_at, 0.0)),
        queues=info.queues,
        workflows=info.workflows,
        unable=info.unable,
        stack=info.stack,
        env=info.env,
        holding=record.beat.holding,
        errors=record.beat.errors,
        last_error=record.beat.last_error,
    )


def _loop(record: RunnerRecord, beat_age_s: float) -> LoopFacts | None:
    """What held its event loop when it beat last. A loop that turns again is worth a beat of its own."""
    held = record.beat.loop_held
    if held is None or record.gone_at is not None:
        return None
    return LoopFacts(held.for_s + beat_age_s, held.run_id or "", held.leaf or "", held.where)


def _doubt(record: RunnerRecord, liveness: Liveness) -> str | None:
    """Why nothing tells whether that runner lives. A record that cannot be read may still name a held lock."""
    return liveness.doubt(record) or record.unreadable


async def store_facts(store: Store) -> StoreFacts | None:
    """Whether the store takes data now, by an attempt that leaves nothing behind."""
    found = await store.checkup.refusal()
    if found is None:
        return None
    return StoreFacts(cause=found.cause, place=found.place, detail=found.detail, free_bytes=found.free_bytes)


async def store_trouble(store: Store) -> str | None:
    """What is wrong with the store for all who use it, in one line."""
    found = await store_facts(store)
    return None if found is None or found.cause == "not_permitted" else refusal_text(found)


async def facts_of_page(
    store: Store, people: Crew, records: Sequence[RunRecord], *, stale_after_s: float | None = None
) -> list[Facts]:
    """The facts about many runs, from their documents alone: no log is read."""
    now = await store.now()
    found = [_facts(record, people, now) for record in records]
    return found if stale_after_s is None else [replace(each, stale_after_s=stale_after_s) for each in found]


async def facts_of_run(
    store: Store,
    people: Crew,
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
        facts = _facts(record, await _with(people, store, record), now, unreadable=str(error))
        return replace(facts, stale_after_s=stale_after_s), None
    people = await _with(people, store, record)
    inbox = await store.inbox(run_id)
    now = await store.now()
    facts = _facts(record, people, now, folded, story(log))
    facts = _with_log(facts, record, log, state, folded, inbox)
    facts = replace(facts, stale_after_s=stale_after_s, stream_open=stream_open)
    if folded is None or folded.ended:
        return facts, state
    return await _with_surroundings(store, people, facts, state, now), state


async def _log_and_record(store: Store, record: RunRecord) -> tuple[list[Event], RunRecord]:
    """A log, and a record that was read after it; a record that is ahead only because the run went on is read anew."""
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


async def _with(people: Crew, store: Store, record: RunRecord) -> Crew:
    """The runners, read anew if the holder came after they were read."""
    if record.holder is None or record.holder in people.all:
        return people
    return await crew(store, people.liveness)


def _with_log(
    facts: Facts, record: RunRecord, log: list[Event], state: State, folded: Document | None, inbox: list[Message]
) -> Facts:
    # Imported here, and below: a list of runs asks for no surroundings, and these load the engine.
    from buoy.recovery.surroundings import unread_messages

    unread = unread_messages(inbox, state)
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
        messages=unread,
        drift=None if folded is None else difference(record.document, folded),
    )


async def _with_surroundings(store: Store, people: Crew, facts: Facts, state: State, now: float) -> Facts:
    from buoy.recovery.surroundings import Definitions, children_of, definitions_of

    children = await children_of(store, state)
    # Planning a large spec takes a while, and under a live owner nobody asks for it.
    known = Definitions("unknown", "unknown") if facts.live_owner else await definitions_of(store, state)
    troubles = {
        child: text for child, found in children.items() if (text := _trouble_of(people, found, now)) is not None
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


def _trouble_of(people: Crew, child: RunRecord | None, now: float) -> str | None:
    """Why a child does not go on, from its document alone."""
    if child is None:
        return None
    facts = _facts(child, people, now)
    verdict = judge(facts)
    if verdict.health in TROUBLES:
        return f"{verdict.health}: {verdict.reasons[0]}"
    pause = child.document.pause
    return None if pause is None else f"paused: {pause.reason}{f' ({pause.detail})' if pause.detail else ''}"


def _facts(
    record: RunRecord,
    people: Crew,
    now: float,
    current: Document | None = None,
    told: Story | None = None,
    unreadable: str | None = None,
) -> Facts:
    shown = current or record.document
    held = None if shown.ended else record.holder
    return Facts(
        document=shown,
        now=now,
        holder=None if held is None else people.get(held),
        due_at=record.due_at,
        runners=people.living,
        progress=None if held is None else people.progress(held, shown.run_id),
        story=told or Story(),
        unreadable=unreadable,
        task=_task(record),
    )


def _task(record: RunRecord) -> TaskFacts:
    state: TaskState = "parked"
    if record.holder is not None:
        state = "held"
    elif not record.has_task:
        state = "missing"
    elif record.due_at is not None:
        state = "due"
    return TaskFacts(record.envelope.orchestrator_task_id or "", record.envelope.generation, state)
