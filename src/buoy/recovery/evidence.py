"""Evidence: gathers the facts about runs from a store. The one place that does, for the command line, API and page.

Invariants: nothing is changed by looking. A read that fails raises; only a log that breaks its own rules becomes a fact
(`unreadable`), since a person must be able to see that run too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buoy.core.document import Document, document
from buoy.core.events import Event
from buoy.core.facts import Facts, ProgressFacts, RunnerFacts, Story, story
from buoy.core.ids import RunId, RunnerId
from buoy.core.state import State, fold
from buoy.engine.loading import read_log
from buoy.errors import CorruptLog
from buoy.ports import Liveness, RunnerRecord, RunRecord, Store


class Crew:
    """All runners of a store at one moment, each looked at once."""

    def __init__(self, records: Iterable[RunnerRecord], liveness: Liveness, now: float) -> None:
        self._records = {record.info.id: record for record in records}
        self.all = {runner: _runner_facts(record, liveness, now) for runner, record in self._records.items()}
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
    return Crew(await store.runners(gone=True), liveness, await store.now())


def _runner_facts(record: RunnerRecord, liveness: Liveness, now: float) -> RunnerFacts:
    info = record.info
    return RunnerFacts(
        id=info.id,
        host=info.host,
        pid=info.pid,
        role=info.role,
        beat_age_s=max(now - record.beat_at, 0.0),
        gone_why=record.gone_why if record.gone_at is not None else None,
        proof=liveness.proof_of_death(record) if record.gone_at is None else None,
        queues=info.queues,
        workflows=info.workflows,
        stack=info.stack,
        env=info.env,
        holding=record.beat.holding,
        errors=record.beat.errors,
        last_error=record.beat.last_error,
    )


async def facts_of_page(store: Store, people: Crew, records: Sequence[RunRecord]) -> list[Facts]:
    """The facts about many runs, from their documents alone: no log is read."""
    now = await store.now()
    return [_facts(record, people, now) for record in records]


async def facts_of_run(store: Store, people: Crew, record: RunRecord) -> tuple[Facts, State | None]:
    """All the facts about one run, its log included, and the folded log."""
    run_id = record.document.run_id
    now = await store.now()
    try:
        log = await read_log(store, run_id)
        state = fold(run_id, log)
        folded = document(state)
    except CorruptLog as error:
        return _facts(record, people, now, unreadable=str(error)), None
    drift = _drift(record.document, folded, log)
    inbox = await store.inbox(run_id)
    unread = sum(1 for message in inbox if message.number not in state.consumed)
    # The log is the truth: a document that merely lags behind it is not shown.
    current = folded if drift is None and folded.head_seq >= record.document.head_seq else record.document
    return _facts(record, people, now, current, drift, unread, story(log)), state


def _facts(
    record: RunRecord,
    people: Crew,
    now: float,
    current: Document | None = None,
    drift: str | None = None,
    unread: int = 0,
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
        unread=unread,
        progress=None if held is None else people.progress(held, shown.run_id),
        story=told or Story(),
        drift=drift,
        unreadable=unreadable,
    )


def _drift(stored: Document, folded: Document, log: Sequence[Event]) -> str | None:
    """In what a document that claims to be current differs from its log."""
    if stored.head_seq > len(log):
        return f"its document is at event {stored.head_seq}, its log ends at {len(log)}"
    if stored.head_seq < len(log):
        return None
    different = [name for name in Document.__struct_fields__ if getattr(stored, name) != getattr(folded, name)]
    if not different:
        return None
    name = "status" if "status" in different else different[0]
    return f"its document says {name} = {getattr(stored, name)}, its log says {getattr(folded, name)}"
