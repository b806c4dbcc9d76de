"""A store with a clock of its own, and processes whose clocks are wrong by hours: what is judged by which clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from buoy.core.diagnosis.health import Health, judge
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.ports.records import Beat, Released
from buoy.recovery.evidence import facts_of_page, facts_of_run
from buoy.recovery.fleet import read_fleet
from buoy.recovery.recover import examine, recover_run
from buoy.recovery.sweep.reconcile import reconcile
from buoy.recovery.sweep.scan import ScanOptions, scan
from buoy.stores.objects.buckets.memory import MemoryBucket
from buoy.stores.objects.store import ObjectStore
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.clock import BehindClock, ManualClock
from tests.core.logbook import claimed, completed, started
from tests.patience import PATIENCE_S

from .harness import Deaths, RecoveryHarness, created

HOUR_S = 3600.0
UNDER_WAY = (claimed("r1"), started("a#1"), completed("a#1"), started("b#1"))
KINDS = ("sqlite", "objects")
# Positive: the clocks of all processes, and so the times of all runs, are behind the store's.
WRONG_BY_S = (HOUR_S, -HOUR_S)


class TimedHarness(RecoveryHarness):
    """`own` is the store's clock; `clock`, by which runs are written, is wrong."""

    def __init__(self, store: SqliteStore | ObjectStore, own: ManualClock, behind_s: float) -> None:
        self.own = own
        super().__init__(store, BehindClock(own, behind_s), Deaths())  # type: ignore[arg-type]


@asynccontextmanager
async def timed(place: Path, kind: str, behind_s: float) -> AsyncIterator[TimedHarness]:
    own = ManualClock()
    wrong = BehindClock(own, behind_s)
    store: SqliteStore | ObjectStore
    if kind == "sqlite":
        store = await SqliteStore.open(place / "runs.db", clock=wrong, own_clock=own)
    else:
        store = await ObjectStore.on(MemoryBucket(), clock=wrong, single_host=True, own_clock=own)
    try:
        yield TimedHarness(store, own, behind_s)
    finally:
        await store.close()


def play(place: Path, kind: str, behind_s: float, test: Callable[[TimedHarness], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), timed(place, kind, behind_s) as harness:
            await test(harness)

    asyncio.run(main())


on_both = pytest.mark.parametrize("kind", KINDS)
with_wrong_clocks = pytest.mark.parametrize("behind_s", WRONG_BY_S)


@on_both
@with_wrong_clocks
def test_a_run_is_stale_by_the_age_that_the_store_knows(tmp_path: Path, kind: str, behind_s: float) -> None:
    async def test(harness: TimedHarness) -> None:
        alive = await harness.runner("r1")
        await harness.left_by(alive, "slow", created(), *UNDER_WAY)
        harness.own.advance(50.0)
        await harness.store.beat(alive, Beat(number=1))
        assert (await scan(harness.client, ScanOptions(stale_after_s=60.0))).scanned == 0
        assert (await recover_run(harness.client, "slow", stale_after_s=60.0, dry_run=True)).note is None
        harness.own.advance(20.0)
        found = await scan(harness.client, ScanOptions(stale_after_s=60.0))
        (notice,) = found.notices
        (finding,) = [each for each in notice.findings if each.code == "H3"]
        assert finding.evidence["still_for_s"] == 70.0

    play(tmp_path, kind, behind_s, test)


@on_both
@with_wrong_clocks
def test_a_timer_is_overdue_by_the_runs_own_time(tmp_path: Path, kind: str, behind_s: float) -> None:
    """Parked by mistake, though it has a time: reconcile gives it back its wake-up, and not before that is due."""

    async def test(harness: TimedHarness) -> None:
        sleeps = e.TimerStarted(leaf=LeafId("timer#1"), due_at=harness.clock.now() + 60.0)
        await harness.plant("sleeper", created(), claimed("r1"), sleeps)
        harness.own.advance(59.0)
        facts = (await examine(harness.client, "sleeper")).facts  # type: ignore[arg-type]
        assert facts.now == harness.clock.now()
        assert (await reconcile(harness.client)).replayed == 0
        assert await harness.due() == []
        harness.own.advance(61.0)
        assert (await reconcile(harness.client)).replayed == 1
        assert await harness.due() == ["sleeper"]

    play(tmp_path, kind, behind_s, test)


@on_both
@with_wrong_clocks
def test_facts_tell_all_times_by_the_clock_of_the_run(tmp_path: Path, kind: str, behind_s: float) -> None:
    async def test(harness: TimedHarness) -> None:
        now = harness.clock.now()
        await harness.plant("waits", created(), task=Released(due_at=now + 90.0, now=now))
        harness.own.advance(10.0)
        await harness.client.signal("waits", "go", None)
        harness.own.advance(5.0)
        people = await read_fleet(harness.store, harness.deaths)
        record = await harness.record("waits")
        facts, _ = await facts_of_run(harness.store, people, record)
        (message,) = facts.messages
        assert (facts.now - facts.document.created_at, facts.now - message.sent_at) == (15.0, 5.0)
        (listed,) = await facts_of_page(harness.store, people, [record])
        assert (listed.now, listed.due_at) == (facts.now, facts.due_at)
        assert facts.due_at is not None and 0.0 <= facts.now - facts.due_at <= 5.0, "the message made it due"
        assert judge(facts).health is Health.STALLED, "no worker can take it"

    play(tmp_path, kind, behind_s, test)


@on_both
@with_wrong_clocks
def test_what_another_process_appends_goes_on_in_the_runs_time(tmp_path: Path, kind: str, behind_s: float) -> None:
    """A pause by a process whose clock is right must not move a run, whose clock is wrong, by an hour."""

    async def test(harness: TimedHarness) -> None:
        await harness.plant("waits", created(), claimed("r1"), e.SignalWaited(leaf=LeafId("signal#1"), name="go"))
        harness.own.advance(30.0)
        right = harness.client_of(harness.store, "right")
        right.clock = harness.own
        assert (await right.pause("waits")).done
        harness.own.advance(30.0)
        assert (await right.resume("waits")).done
        log = await harness.log("waits")
        assert [round(event.at - log[0].at) for event in log] == [0, 0, 0, 30, 30, 60, 60]
        assert await harness.due() == ["waits"]

    play(tmp_path, kind, behind_s, test)


@on_both
@with_wrong_clocks
def test_a_remedy_goes_on_in_the_runs_time(tmp_path: Path, kind: str, behind_s: float) -> None:
    async def test(harness: TimedHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "lost", created("restart"), *UNDER_WAY)
        harness.own.advance(30.0)
        right = harness.client_of(harness.store, "right")
        right.clock = harness.own
        assert (await recover_run(right, "lost")).action == "restart"
        log = await harness.log("lost")
        assert {round(event.at - log[0].at) for event in log[5:]} == {30}
        assert await harness.due() == ["lost"]

    play(tmp_path, kind, behind_s, test)
