"""The fleet: all runners of a store at one moment, each with what shows of it from here.

Invariants: each record is looked at once. The age of a beat is counted only where its clock can be compared with ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buoy.core.diagnosis.facts import LoopFacts, ProgressFacts, RunnerFacts
from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import RUNNERS_GONE_SHOWN
from buoy.core.times import StoreTime
from buoy.ports.host import Liveness, Sight
from buoy.ports.records import DEREGISTERED, RunnerRecord
from buoy.ports.store import Store


class Fleet:
    """All runners of a store at one moment, each looked at once. `sights`: what shows of them from here."""

    def __init__(
        self, records: Iterable[RunnerRecord], sights: Mapping[RunnerId, Sight], liveness: Liveness, now: StoreTime,
        *, has_clock: bool = True,
    ) -> None:  # fmt: skip
        self.has_clock = has_clock
        self.liveness = liveness
        self.sights = sights
        self.records = {record.info.id: record for record in records}
        self.all = {
            runner: _runner_facts(record, sights[runner], now if has_clock or sights[runner].seen else None)
            for runner, record in self.records.items()
        }
        self.living = tuple(each for each in self.all.values() if not each.gone)
        # Holders of runs that a later read did not find either: a runner registers before it holds anything.
        self.strangers: set[RunnerId] = set()

    @property
    def registered(self) -> tuple[RunnerRecord, ...]:
        """Those that are not declared gone."""
        return tuple(record for record in self.records.values() if record.gone_at is None)

    def get(self, runner: RunnerId) -> RunnerFacts:
        """The facts about that runner; a runner that the store does not know is marked as unknown."""
        return self.all.get(runner) or RunnerFacts(id=runner, registered=False)

    def progress(self, runner: RunnerId, run_id: RunId) -> ProgressFacts | None:
        record = self.records.get(runner)
        found = None if record is None else record.beat.progress.get(run_id)
        return None if found is None else ProgressFacts(found.at, found.done, found.total, found.note, found.leaf)


def was_lost(record: RunnerRecord) -> bool:
    """Whether others declared it dead. A runner that deregistered was not lost."""
    return record.gone_at is not None and record.gone_why != DEREGISTERED


async def read_fleet(
    store: Store, liveness: Liveness, *, gone: int = RUNNERS_GONE_SHOWN, glance: bool = False
) -> Fleet:
    """The living runners of that store, and the newest of those that are gone. `glance`: see `Store.runners`."""
    records = await store.runners(gone=gone, glance=glance)
    sights = await liveness.look(records)
    return Fleet(records, sights, liveness, await store.now(), has_clock=store.has_clock)


def _runner_facts(record: RunnerRecord, sight: Sight, now: StoreTime | None) -> RunnerFacts:
    """`now` None: its times are those of a clock that cannot be compared with ours."""
    info = record.info
    proof = sight.proof if record.gone_at is None else None
    return RunnerFacts(
        id=info.id,
        host=info.host,
        pid=info.pid,
        role=info.role,
        beat_age_s=None if now is None or record.unreadable is not None else _beat_age_s(record, now),
        beats=record.beat.number,
        beat_at=float(record.beat_at),
        suspected=record.suspected_beat is not None and record.suspected_beat == record.beat.number,
        gone_why=record.gone_why if record.gone_at is not None else None,
        proof=proof,
        # A record that cannot be read may still name a held lock.
        doubt=(sight.doubt or record.unreadable) if record.gone_at is None and proof is None else None,
        unreadable=record.unreadable,
        stopped=record.gone_at is None and sight.stopped,
        loop=_loop(record, 0.0 if now is None else _beat_age_s(record, now)),
        stuck=record.beat.stuck,
        allocation=info.allocation.job_id if info.allocation is not None and info.proof == "allocation" else None,
        queues=info.queues,
        workflows=info.workflows,
        tends=info.tends,
        unable=info.unable,
        stack=info.stack,
        env=info.env,
        holding=record.beat.holding,
        errors=record.beat.errors,
        last_error=record.beat.last_error,
        error_age_s=record.beat.error_age_s,
    )


def _beat_age_s(record: RunnerRecord, now: StoreTime) -> float:
    """Age of its last beat. If it has beaten since its record was read, the age counts from when this process saw
    it."""
    return record.quiet_s if record.beaten else max(now - record.beat_at, 0.0)


def _loop(record: RunnerRecord, beat_age_s: float) -> LoopFacts | None:
    """What held its event loop when it beat last. A loop that turns again is worth a beat of its own."""
    held = record.beat.loop_held
    if held is None or record.gone_at is not None:
        return None
    return LoopFacts(held.for_s + beat_age_s, held.run_id or "", held.leaf or "", held.where)
