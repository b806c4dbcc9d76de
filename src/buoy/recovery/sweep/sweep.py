"""Sweep: one look at everything that may be in trouble, with recovery of what is.

Invariants: death needs proof; a read error is `unknown` and nothing is done; an error about one run does not stop the
others; a lost claim is `skipped`. Any number of sweeps may run at once; a second one has no further effect. A limit
counts recoveries, and what was looked at is remembered by a cursor, so that no limit starves those that come later.
One statement releases everything that a dead runner held and that may simply continue. Runs with another policy
are claimed with their remedies, one by one, before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from buoy.core.diagnosis.first_look import gives_sign
from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import LOOKS_SLACK_S, RUNNERS_GONE_KEPT, SWEEP_ORPHANS_MAX
from buoy.core.log.events import LOT_WORKFLOW
from buoy.core.log.lifecycle import RESTING, Status
from buoy.engine.client.client import Client
from buoy.engine.services.recovery_log import note_death, note_release
from buoy.errors import CorruptLog, Problem
from buoy.ports.host import Sight
from buoy.ports.records import Evidence, Orphan, RunnerRecord, RunQuery, RunRecord
from buoy.recovery.evidence import facts_of_page
from buoy.recovery.failure_detector import FailureDetector, retire, strike_unregistered
from buoy.recovery.fleet import Fleet, read_fleet
from buoy.recovery.recover import Recovery, recover_run, ruling_of
from buoy.recovery.sweep.left_lots import end_left, held_lots
from buoy.recovery.sweep.recent_fleet import RecentFleet
from buoy.recovery.sweep.scan import ScanOptions, held_by, held_in_silence, mixed, stale_page, sweep_pages
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.tally import Swept, Tally


class SweepOptions(ScanOptions, frozen=True, kw_only=True):
    """`limit`: recoveries at most; `rate`: of them per second; `looks_max`: stale runs looked at (None: all)."""

    limit: int | None = None
    rate: float | None = None
    looks_max: int | None = None
    dry_run: bool = False
    # How many of the newest records of gone runners are kept.
    gone_kept: int = RUNNERS_GONE_KEPT


class Sweep:
    """One sweep. `cursor` is where the look at stale runs begins, and afterwards where the next one continues."""

    def __init__(
        self,
        client: Client,
        detector: FailureDetector,
        options: SweepOptions | None = None,
        *,
        cursor: str | None = None,
        on_recovery: Callable[[Recovery], None] | None = None,
    ) -> None:
        self._client = client
        self._store = client.store
        self._detector = detector
        self._options = options or SweepOptions()
        self._scope = Scope.of(client, self._options.scope)
        self._on_recovery = on_recovery
        self._seen: set[RunId] = set()
        # The runners as they were a moment ago, and when that was by our own clock. A glance shows who they are and
        # who is silent; what they do is read before a run is recovered.
        self._recent = RecentFleet(client)
        self._glance: Fleet | None = None
        self._glanced_at = 0.0
        self.cursor = cursor
        # What was read of runs that have not moved for long, where a second read is billed.
        self.read: list[RunRecord] = []
        self.tally = Tally(self._options.limit)

    async def whole(self) -> Swept:
        """Dead runners, orphans, what the silent hold, and runs that have not moved for long."""
        await self.dead()
        await strike_unregistered(self._store, self._client.liveness, dry_run=self._options.dry_run)
        await self.orphans()
        await self._silent()
        await self.stale()
        if not self._options.dry_run:
            await retire(self._store, self._client.liveness, self._options.gone_kept)
        return self.tally.total()

    # ---- dead runners

    async def dead(self) -> None:
        """Releases what the dead held. All runners are looked at once, however many of them are dead."""
        self._glance = fleet = await read_fleet(self._store, self._client.liveness, gone=0, glance=True)
        self._glanced_at = self._client.clock.monotonic()
        self._detector.forget(set(fleet.records))
        for record in fleet.registered:
            if record.info.id == self._client.actor:
                continue
            try:
                await self._runner(record, fleet.sights[record.info.id])
            except Problem as error:
                self.tally.trouble(f"runner {record.info.id}: {error}", error)
        if self.tally.dead_runners:
            self._glance = None

    async def _fleet(self) -> Fleet:
        """The runners, the newest of the gone too. A sweep that takes long looks again."""
        return await self._recent.get()

    async def _at_a_glance(self) -> Fleet:
        """The living runners. A sweep that takes long looks again."""
        now = self._client.clock.monotonic()
        if self._glance is None or now - self._glanced_at > LOOKS_SLACK_S:
            self._glance = await read_fleet(self._store, self._client.liveness, gone=0, glance=True)
            self._glanced_at = now
        return self._glance

    async def _runner(self, record: RunnerRecord, sight: Sight) -> None:
        if record.unreadable is not None and not sight.seen:
            raise CorruptLog(f"{record.unreadable}; what to do: `buoy doctor`")
        evidence = await self._proof(record, sight)
        if evidence is None or (record.info.env != self._scope.env and await self._holds(record)):
            return  # what it holds is of its own env, and is left to the sweepers there
        self.tally.dead_runners += 1
        released = await self._one_by_one(record, sight)
        if released is None or self._options.dry_run:
            return
        lots = await held_lots(self._store, record)
        number = await self._detector.declare_dead(record, evidence)
        if number:
            self._seen |= released
            why = str(evidence.get("proof", "proven dead"))
            note_death(record.info.id, number, released, reason=why, actor=self._client.actor)
            ended = len(await end_left(self._client, lots))
            self.tally.count("healthy", ended)
            self.tally.count("resumed", number - ended)
            self.tally.recovered += number

    async def _holds(self, runner: RunnerRecord) -> bool:
        page = await self._store.find_runs(RunQuery(holder=runner.info.id), limit=1)
        return bool(page.runs or page.broken)

    async def watch(self) -> None:
        """Looks at the runners elsewhere, and does nothing: two looks must not be too far apart."""
        records = await self._store.runners(glance=True)
        sights = await self._client.liveness.look(records)
        for record in records:
            await self._proof(record, sights[record.info.id])

    async def _proof(self, record: RunnerRecord, sight: Sight) -> Evidence | None:
        # A first look across hosts would be noted; with `dry_run` looking alone must change nothing.
        return sight.proof if self._options.dry_run else await self._detector.proof(record, sight)

    async def _one_by_one(self, runner: RunnerRecord, sight: Sight) -> set[RunId] | None:
        """Recovers what must not just be released, and gives the rest, which a declared death releases.

        None: the runner must not be declared dead yet. The limit is reached, or the store gave no answer about one of
        its runs; then the rest is recovered one by one, so that neither that run nor an unreadable one holds it up.
        """
        options, rest, answered = self._options, set[RunId](), True
        singly = options.rate is not None or options.limit is not None or options.dry_run
        if not sight.seen:
            return rest  # its death is known to this sweeper alone; the next runner asks for the policy
        async for record in held_by(self._store, runner.info.id, self._client.actor):
            if self.tally.full():
                return None
            if not self._scope.covers(record.document):
                continue
            if singly or self._has_other_policy(record):
                answered &= not (await self._recover(record.document.run_id)).unanswered
            else:
                rest.add(record.document.run_id)
        if answered:
            return rest
        for run_id in sorted(rest):
            if self.tally.full():
                break
            await self._recover(run_id)
        return None

    def _has_other_policy(self, record: RunRecord) -> bool:
        """Whether the policy is another than to continue. The recovery reports a lookup that fails."""
        if record.document.status is not Status.RUNNING:
            return False
        return ruling_of(self._client, record.document, self._options.policy).policy != "resume"

    # ---- orphans

    async def orphans(self) -> None:
        """Recovers what no declared death releases: runs without a task, or held by an unregistered runner."""
        found = await self._store.orphans(SWEEP_ORPHANS_MAX)
        if found:
            await self._fleet()
        for orphan in mixed(found, self._client.actor, lambda orphan: orphan.run_id):
            if self.tally.full():
                return
            try:
                await self._orphan(orphan)
            except Exception as error:  # noqa: BLE001 - as with every other run
                self._note(Recovery.unread(orphan.run_id, error))

    async def _orphan(self, orphan: Orphan) -> None:
        record = await self._store.run(orphan.run_id)
        if record is None or not self._scope.covers(record.document) or orphan.run_id in self._seen:
            return
        # A paused run may need no task: that is seen only with its messages.
        if self._options.dry_run or record.document.pause is not None or self._has_other_policy(record):
            await self._recover(orphan.run_id)
            return
        adopted = await self._store.requeue_orphan(orphan)
        if adopted:
            finding = "Q1" if orphan.holder is None else "Q3"
            note_release(orphan.run_id, finding=finding, reason=orphan.why, actor=self._client.actor)
        self._note(Recovery(run_id=orphan.run_id, needed=True, action="resume" if adopted else "lost"))
        await self._pause()

    # ---- what has not moved

    async def _silent(self) -> None:
        """Reports runs whose owner lives and is silent, however lately they moved. No sweep may touch them."""
        async for record, why in held_in_silence(self._client, await self._at_a_glance()):
            if self._scope.covers(record.document):
                self._note(Recovery(run_id=record.document.run_id, action="report", note=f"H3: {why}"))

    async def stale(self) -> None:
        """Goes through active runs, newest first, from where the last sweep ended to their end."""
        looks = pages = 0
        most = self._options.looks_max
        size, pages_max = sweep_pages(self._store, bounded=most is not None)
        while not self.tally.full() and (most is None or looks < most) and (pages_max is None or pages < pages_max):
            page = await stale_page(self._store, self._scope, self._options.stale_after_s, self.cursor, size)
            living = {record.info.id for record in (await self._at_a_glance()).registered}
            for broken in page.broken:
                self._note(Recovery.of_broken(broken))
            sound = await self._sound(page.runs)
            self.read += page.runs if self._store.pace.billed else ()
            for record in page.runs:
                if self.tally.full():
                    return  # the next sweep sees this page again; those recovered are healthy by then
                looks += await self._look(record, living, sound)
            pages += 1
            self.cursor = page.cursor
            if page.cursor is None:
                return

    async def _look(self, record: RunRecord, living: set[RunnerId], sound: set[RunId]) -> bool:
        """A close look at a run, unless it waits in a living runner's hands: then there is nothing to see."""
        doc = record.document
        if doc.run_id in self._seen or not self._scope.covers(doc):
            return False
        if (record.holder in living and doc.status in RESTING) or doc.run_id in sound:
            self._note(Recovery(run_id=doc.run_id))
            return False
        if doc.workflow != LOT_WORKFLOW or self._options.dry_run or not await end_left(self._client, [doc.run_id]):
            await self._recover(doc.run_id)
        # On some stores a look never suspends; this lets steps and heartbeats of the process run.
        await asyncio.sleep(0)
        return True

    async def _sound(self, records: Sequence[RunRecord]) -> set[RunId]:
        """Where each request is billed: the runs whose documents give no sign of trouble, without the first of a page.

        So a sweep reads the log of one such run, and in the end those of all.
        """
        if not self._store.pace.billed or len(records) < 2:
            return set()
        stale_after_s = self._options.stale_after_s
        fleet = await self._at_a_glance()
        found = await facts_of_page(self._store, fleet, records[1:], stale_after_s=stale_after_s)
        return {facts.document.run_id for facts in found if not gives_sign(facts)}

    async def _recover(self, run_id: RunId) -> Recovery:
        """Recovers one run, whatever goes wrong with it."""
        options = self._options
        try:
            found = await recover_run(
                self._client,
                run_id,
                dry_run=options.dry_run,
                policy=options.policy,
                adopt=options.adopt,
                stale_after_s=options.stale_after_s,
                fleet=await self._fleet(),
            )
        except Exception as error:  # noqa: BLE001 - reported; one run's trouble must not stop a sweep
            found = Recovery.unread(run_id, error)
        self._note(found)
        if found.needed:
            await self._pause()
        return found

    def _note(self, found: Recovery) -> None:
        if found.run_id in self._seen:
            return
        self._seen.add(found.run_id)
        self.tally.add(found)
        if self._on_recovery is not None and (found.action != "none" or found.note is not None):
            self._on_recovery(found)

    async def _pause(self) -> None:
        """Limits recoveries per second: after an outage all of them at once may be too much."""
        if self._options.rate is not None and not self._options.dry_run:
            await asyncio.sleep(1.0 / self._options.rate)


async def sweep(client: Client, options: SweepOptions | None = None) -> Swept:
    """One whole sweep, in the process of the caller."""
    return await Sweep(client, FailureDetector(client.store, client.liveness, client.clock, once=True), options).whole()
