"""Doctor: checks the store, every active run's document against its log, and every index entry.

Invariants: without `fix` nothing is repaired (a store may drop stale entries, as it does on every read). A repair
rebuilds only what the logs determine: documents, index entries, tasks. No event is changed or removed. One thing is
added: if only a document proves that events were lost, a claim and the loss go into the log before the rebuild. A run
that cannot be read is reported and left alone. A second look tells trouble from work in progress.
Absent on purpose: remedies that change how a run continues. `recover` applies those.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from buoy.core.diagnosis.document_drift import difference, log_gone_text
from buoy.core.ids import RunId
from buoy.core.limits import LOOKS_APART_S, RUNNERS_GONE_KEPT, RUNS_PAGE_MAX
from buoy.core.log.document import Document, document
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.state import fold
from buoy.core.log.wording import counted
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import CorruptLog
from buoy.operations.maintenance.broken_runners import broken_runners, set_aside
from buoy.operations.maintenance.doctor_report import INDEX, PURGE, RUNNER, STORE, Ailment, DoctorReport
from buoy.ports.maintenance import IndexTrouble
from buoy.ports.records import Broken, Orphan, RunQuery, RunRecord
from buoy.recovery.evidence import writes_check
from buoy.recovery.failure_detector import FailureDetector
from buoy.recovery.recover import Recovery, examine, write_down_loss

# A person reads a few of a million texts; all troubles are counted.
LISTED_MAX = 1_000
_PAGE = 200
_ORPHANS = 500
# Between a first look at an index and a second one: what was under way has arrived by then.
_MOMENT_S = 1.0
_TRIES = 3

Progress = Callable[[str], None]


class Doctor:
    """One examination. `fix` repairs what is safe; `rebuild` also rebuilds every document, those of ended runs too."""

    def __init__(
        self,
        client: Client,
        *,
        fix: bool = False,
        rebuild: bool = False,
        progress: Progress,
        waiting: Progress | None = None,
        apart_s: float = LOOKS_APART_S,
    ) -> None:
        self._client = client
        self._store = client.store
        self._fix = fix or rebuild
        self._rebuild = rebuild
        self._progress = progress
        # Hears that nothing happens for some seconds.
        self._waiting = waiting or progress
        self._apart_s = apart_s
        self._listed: list[Ailment] = []
        self._counts: dict[str, int] = {}
        self._fixed = self._runs = self._lagging = self._foreign = self._rebuilt = self._stale = 0

    async def examine(self) -> DoctorReport:
        """Looks at everything, page by page."""
        self._progress("looking at the store itself")
        checks = await self._store.integrity.checks()
        await self._indexes()
        await self._each_run()
        await self._work()
        number = sum(self._counts.values())
        if not all(check.ok for check in checks):
            # An index of the database that was missing may have been made above.
            checks = await self._store.integrity.checks()
        checks = [*checks, *await writes_check(self._store)]
        bad = [
            Ailment(STORE, f"{check.name}: {check.text}", by_person=check.by_person) for check in checks if not check.ok
        ]
        return DoctorReport(
            store=self._store.name,
            checks=tuple(checks),
            runs=self._runs,
            lagging=self._lagging,
            foreign=self._foreign,
            stale=self._stale,
            rebuilt=self._rebuilt,
            counts=self._counts | ({STORE: len(bad)} if bad else {}),
            fixed=self._fixed,
            left=number + len(bad) - self._fixed,
            troubles=(*bad, *self._listed),
            untold=number - len(self._listed),
        )

    def _add(self, code: str, text: str, run_id: RunId | None = None, **facts: bool) -> None:
        self._counts[code] = self._counts.get(code, 0) + 1
        self._fixed += facts.get("fixed", False)
        if len(self._listed) < LISTED_MAX:
            self._listed.append(Ailment(code, text, run_id, **facts))

    # ---- indexes

    async def _indexes(self) -> None:
        found: list[IndexTrouble] = []
        async for trouble in self._store.integrity.index_troubles(deep=self._rebuild):
            self._progress(f"looking at the indexes: {counted(len(found), 'trouble')} so far")
            if trouble is not None:
                found.append(trouble)
        if not found:
            return
        await asyncio.sleep(_MOMENT_S)
        wait_s = max(trouble.waits_s for trouble in found) - _MOMENT_S if self._fix else 0.0
        if wait_s > 0:
            self._waiting(f"waiting {wait_s:.0f} s: the writer of those entries may still write the rest")
            await asyncio.sleep(wait_s)
        for trouble in found:
            if await self._store.integrity.recheck(trouble):
                fixed = self._fix and trouble.mendable and await self._store.integrity.repair(trouble)
                if trouble.stale:
                    self._stale += not fixed
                else:
                    self._add(INDEX, trouble.text, trouble.run_id, fixed=fixed)

    # ---- runs

    async def _each_run(self) -> None:
        try:
            async for record in self._records():
                self._runs += 1
                self._progress(f"looked at {counted(self._runs, 'run')}")
                if isinstance(record, Broken):
                    self._add("R1", f"it cannot be read: {record.reason}", RunId(record.id))
                else:
                    await self._look_at(record.document.run_id)
            for one in await self._store.schedules.broken():
                self._add(STORE, f"schedule {one.id} cannot be read and does not fire: {one.reason}")
        except CorruptLog as error:
            self._add("R1", f"the list of runs cannot be read to its end: {error}")

    async def _records(self) -> AsyncIterator[RunRecord | Broken]:
        active = tuple(status.value for status in Status if status not in TERMINAL)
        query, cursor = RunQuery(() if self._rebuild else active), None
        while True:
            page = await self._store.find_runs(query, cursor, min(_PAGE, RUNS_PAGE_MAX))
            for record in page.runs:
                yield record
            for broken in page.broken:
                yield broken
            cursor = page.cursor
            if cursor is None:
                return

    async def _look_at(self, run_id: RunId) -> None:
        try:
            record, folded = await self._read(run_id)
            if record is None:
                return
            if folded is None:
                self._without_log(record)
                return
            if record.document.head_seq > folded.head_seq:
                await self._check_ahead(run_id)
            else:
                await self._check_document(record, folded)
            await self._check_task(run_id)
        except CorruptLog as error:
            self._add("R1", str(error).replace(f"the log of {run_id}", "its log"), run_id)
        except Exception as error:  # noqa: BLE001 - an error of one run is reported, and hides no other run
            self._add("R1", Recovery.unread(run_id, error).error or "", run_id)

    async def _read(self, run_id: RunId) -> tuple[RunRecord | None, Document | None]:
        """A run and its folded log, read so that both are from the same moment of the run."""
        record, folded = None, None
        for _ in range(_TRIES):
            log = await read_log(self._store, run_id)
            record = await self._store.run(run_id)
            if record is None or not log:
                return record, None
            folded = document(fold(run_id, log))
            if record.document.head_seq <= folded.head_seq:
                break
        return record, folded

    async def _check_document(self, record: RunRecord, folded: Document) -> None:
        run_id, stored = folded.run_id, record.document
        wrong = difference(stored, folded)
        lags = stored.head_seq < folded.head_seq
        self._lagging += lags
        fixed = False
        if self._rebuild or (self._fix and (lags or wrong is not None)):
            fixed = await self._store.archive.rewrite(run_id, folded, folded.head_seq)
            self._rebuilt += fixed
        if wrong is not None:
            self._add("R2", wrong, run_id, fixed=fixed)

    async def _check_ahead(self, run_id: RunId) -> None:
        """A document that names events which the log does not have, unless the run just moved."""
        drift = (await examine(self._client, run_id)).facts.drift
        if drift is not None:
            fixed = self._fix and await write_down_loss(self._client, run_id)
            self._rebuilt += fixed
            self._add("R2", drift, run_id, fixed=fixed)

    def _without_log(self, record: RunRecord) -> None:
        """Another system's document never had one; a run that Buoy drove has lost it."""
        if record.envelope.orchestrator_task_id is None:
            self._foreign += 1
            return
        self._add("R1", log_gone_text(record.document.head_seq), record.document.run_id)

    async def _check_task(self, run_id: RunId) -> None:
        record = await self._store.run(run_id)
        if record is None or record.document.ended or record.has_task:
            return
        fixed = self._fix and await self._store.requeue_orphan(Orphan(run_id, None, "it has no task", no_task=True))
        self._add("Q1", "it is active and has no task", run_id, fixed=fixed)

    # ---- who should do the work

    async def _work(self) -> None:
        self._progress("looking for work that no runner will do")
        await self._dead_runners()
        seen: set[RunId] = set()
        known = {record.info.id for record in await self._store.runners(gone=RUNNERS_GONE_KEPT)}
        while True:
            orphans = [each for each in await self._store.orphans(_ORPHANS) if each.run_id not in seen]
            for orphan in orphans:
                seen.add(orphan.run_id)
                if orphan.no_task:
                    continue
                code = "Q4" if orphan.holder is None else ("H1" if orphan.holder in known else "Q3")
                fixed = self._fix and await self._store.requeue_orphan(orphan)
                self._add(code, orphan.why, orphan.run_id, fixed=fixed)
            if not orphans:
                break
        for run_id in await self._store.archive.half_purged():
            stone = await self._store.archive.tombstone(run_id) if self._fix else None
            fixed = stone is not None and await self._store.archive.purge(stone)
            self._add(PURGE, "its purge was begun and not finished", run_id, fixed=fixed)

    async def _dead_runners(self) -> None:
        """Those whose death is seen from here; of others only a sweeper that stays can tell."""
        detector = FailureDetector(self._store, self._client.liveness, self._client.clock)
        records = await self._store.runners()
        sights = await self._client.liveness.look(records)
        for record in records:
            proof = sights[record.info.id].proof
            if proof is not None:
                fixed = self._fix and await detector.declare_dead(record, proof) is not None
                self._add("H1", f"runner {record.info.id} is dead ({proof['proof']}) but still registered", fixed=fixed)
        await self._broken_runners()

    async def _broken_runners(self) -> None:
        found = await broken_runners(self._client)
        if self._fix and any(each.idle for each in found):
            self._waiting(f"waiting {self._apart_s:.0f} s: a runner whose record cannot be read may still beat")
            await asyncio.sleep(self._apart_s)
        aside = await set_aside(self._client, found, apart_s=self._apart_s) if self._fix else ()
        for each in found:
            self._add(RUNNER, each.text, fixed=each.record.info.id in aside, by_person=not each.idle)
