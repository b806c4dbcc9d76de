"""Sweeps: what they find, what they count, and that any number of them do it once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.errors import Unavailable
from buoy.ports.records import Beat, Ended, Held, Released
from buoy.ports.store import Store
from buoy.recovery.failure_detector import FailureDetector
from buoy.recovery.recover import Recovery
from buoy.recovery.sweep.reconcile import Reconciled, reconcile
from buoy.recovery.sweep.scan import ScanOptions, scan
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import Sweep, SweepOptions, sweep
from buoy.recovery.sweep.sweeper import Sweeper
from buoy.recovery.sweep.tally import Swept
from buoy.stores import open_store
from buoy.stores.sqlite.store import SqliteStore
from tests.core.logbook import claimed, completed, started

from .harness import KINDS, RecoveryHarness, created, play

UNDER_WAY = (claimed("r1"), started("a#1"), completed("a#1"), started("b#1"))
NOW = SweepOptions(stale_after_s=0.0)


def counts(found: Swept) -> dict[str, int]:
    words = ("scanned", "healthy", "restarted", "resumed", "failed", "held", "skipped", "unknown")
    return {word: getattr(found, word) for word in words if getattr(found, word)}


async def _no_reconcile(*args: Any, **kwargs: Any) -> Reconciled:
    return Reconciled()


async def left_behind(harness: RecoveryHarness) -> None:
    """One of each."""
    dead = await harness.runner("r1", dead=True)
    for policy in ("resume", "restart", "fail", "hold"):
        await harness.left_by(dead, f"to-{policy}", created(policy), *UNDER_WAY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_counts_what_it_did_and_a_second_one_finds_nothing(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await left_behind(harness)
        await harness.runner("able", workflows={"order": ("",)})
        found = await sweep(harness.client, NOW)
        assert counts(found) == {"scanned": 4, "restarted": 1, "resumed": 1, "failed": 1, "held": 1}
        assert (found.dead_runners, found.troubles) == (1, ())
        again = await sweep(harness.client, NOW)
        assert counts(again) == {"scanned": 2, "healthy": 2}
        assert await harness.due() == ["to-restart", "to-resume"]

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_says_what_a_sweep_would_do_and_changes_nothing(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await left_behind(harness)
        before = [await harness.record(f"to-{policy}") for policy in ("resume", "restart", "fail", "hold")]
        found = await scan(harness.client, ScanOptions(stale_after_s=0.0))
        assert {each.run_id: each.action for each in found.found} == {
            f"to-{policy}": policy for policy in ("resume", "restart", "fail", "hold")
        }
        dry = await sweep(harness.client, SweepOptions(stale_after_s=0.0, dry_run=True))
        assert counts(dry) == {"scanned": 4, "restarted": 1, "resumed": 1, "failed": 1, "held": 1}
        after = [await harness.record(f"to-{policy}") for policy in ("resume", "restart", "fail", "hold")]
        assert before == after
        assert len(await harness.store.runners()) == 1

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_notices_a_run_without_progress_as_a_sweep_does(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        alive = await harness.runner("r1")
        await harness.left_by(alive, "slow", created(), *UNDER_WAY)
        harness.clock.advance(100.0)
        await harness.store.beat(alive, Beat(number=1))
        told: list[Recovery] = []
        detector = FailureDetector(harness.store, harness.deaths, harness.clock, once=True)
        options = SweepOptions(stale_after_s=60.0, dry_run=True)
        swept = Sweep(harness.client, detector, options, on_recovery=told.append)
        await swept.whole()
        (noticed,) = told
        found = await scan(harness.client, ScanOptions(stale_after_s=60.0))
        assert (found.scanned, found.healthy, found.found) == (1, 1, ())
        (notice,) = found.notices
        assert (notice.run_id, notice.action, notice.note) == ("slow", "none", noticed.note)
        assert [each.code for each in notice.findings if not each.trouble and "still_for_s" in each.evidence] == ["H3"]

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_orphans_are_adopted_unless_their_policy_says_otherwise(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        ghost = await harness.runner("ghost")
        await harness.plant("on-1", created(), *UNDER_WAY, task=Held(ghost))
        await harness.plant("end-1", created("fail"), *UNDER_WAY, task=Held(cast(Any, "never-registered")))
        harness.deaths.dead.add("ghost")
        found = await sweep(harness.client, NOW)
        assert (found.resumed, found.failed) == (1, 1)
        assert await harness.due() == ["on-1"]

    play(tmp_path, test, kind)


def test_runs_of_other_stacks_and_envs_are_left_alone(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=harness.clock.now() - 100.0)
        places = {"a": ("one", None), "b": ("two", None), "c": (None, None), "d": ("one", "test")}
        for name, (stack, env) in places.items():
            await harness.plant(f"run-{name}", created(stack=stack, env=env), claimed("r1"), timer)

        async def seen(**scope: str | None) -> set[str]:
            found = await scan(harness.client, ScanOptions(stale_after_s=0.0, scope=Scope(**scope)))
            return {each.run_id[-1] for each in found.found}

        assert await seen() == {"a", "b", "c"}
        assert await seen(stack="one") == {"a", "c"}
        assert await seen(stack="two", env="test") == set()
        assert await seen(env="test") == {"d"}
        found = await sweep(harness.client, SweepOptions(stale_after_s=0.0, scope=Scope(env="test")))
        assert (found.scanned, found.resumed) == (1, 1)

    play(tmp_path, test)


def test_a_limit_counts_recoveries_and_starves_nobody(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        for number in range(7):
            await harness.left_by(dead, f"run-{number}", created(), *UNDER_WAY)
        limited = SweepOptions(stale_after_s=0.0, limit=3)
        for expected, more in ((3, True), (3, True), (1, False)):
            found = await sweep(harness.client, limited)
            assert (found.resumed, found.more) == (expected, more)
        assert len(await harness.due()) == 7
        assert [each.info.id for each in await harness.store.runners()] == ["looker"]

    play(tmp_path, test)


def test_a_bounded_sweep_goes_on_where_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.recovery.sweep.scan.SWEEP_PAGES_MAX", 1)
    monkeypatch.setattr("buoy.recovery.sweep.scan._PAGE", 2)

    async def test(harness: RecoveryHarness) -> None:
        timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=harness.clock.now() - 100.0)
        for number in range(5):
            await harness.plant(f"run-{number}", created(), claimed("r1"), timer)
        # It would wake them all at once.
        options = SweepOptions(stale_after_s=0.0, looks_max=2)
        sweeper = Sweeper(harness.store, harness.deaths, client=harness.client, options=options)
        monkeypatch.setattr("buoy.recovery.sweep.sweeper.reconcile", _no_reconcile)
        seen = [(await sweeper.whole()).swept.resumed for _ in range(3)]
        assert seen == [2, 2, 1]
        health = sweeper.health()
        assert health is not None and (health.sweeps, health.failing) == (3, False)

    play(tmp_path, test)


def test_an_error_about_one_run_is_unknown_and_stops_no_other(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        for number in range(3):
            await harness.left_by(dead, f"run-{number}", created("restart"), *UNDER_WAY)

        class Blind:
            def __getattr__(self, name: str) -> Any:
                found = getattr(harness.store, name)

                async def events(run_id: RunId, after: int = 0, limit: int | None = None) -> Any:
                    if run_id == "run-1":
                        raise Unavailable("no answer (a test)")
                    return await found(run_id, after, limit)

                return events if name == "events" else found

        found = await sweep(harness.client_of(cast(Store, Blind())), NOW)
        assert counts(found) == {"scanned": 3, "restarted": 2, "unknown": 1}
        assert any("run-1" in each and "no answer" in each for each in found.troubles)
        assert (await harness.record("run-1")).holder == "r1", "what could not be read must be left as it is"
        assert counts(await sweep(harness.client, NOW))["restarted"] == 1

    play(tmp_path, test)


def test_a_claim_that_was_lost_is_skipped(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "run-1", created("restart"), *UNDER_WAY)

        class Slow:
            """Another sweeper is quicker, just before the commit."""

            def __getattr__(self, name: str) -> Any:
                found = getattr(harness.store, name)

                async def commit(writes: Any) -> Any:
                    assert (await sweep(harness.client_of(harness.store, "sweeper-2"), NOW)).restarted == 1
                    return await found(writes)

                return commit if name == "commit" else found

        found = await sweep(harness.client_of(cast(Store, Slow())), NOW)
        assert counts(found)["skipped"] == 1
        assert (await harness.types("run-1")).count("branch_created") == 1

    play(tmp_path, test)


def test_a_thing_that_was_rated_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def nap(span_s: float) -> None:
        slept.append(span_s)
        await real(0)

    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        for number in range(4):
            await harness.left_by(dead, f"run-{number}", created(), *UNDER_WAY)
        monkeypatch.setattr("buoy.recovery.sweep.sweep.asyncio.sleep", nap)
        found = await sweep(harness.client, SweepOptions(stale_after_s=0.0, rate=2.0))
        assert found.resumed == 4
        assert slept.count(0.5) == 4
        # Each has its own claim: the crash is in its log.
        assert (await harness.types("run-0"))[-1] == "claimed"

    play(tmp_path, test)


def test_a_reconcile_replays_ends_of_children_that_were_lost(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        alive = await harness.runner("alive", workflows={"order": ("",)})

        def bears(number: int) -> e.ChildStarted:
            leaf = started(f"c#{number}").leaf
            return e.ChildStarted(leaf=leaf, child=RunId(f"child-{number}"), workflow="order", input=created().input)

        both = (bears(1), bears(2))
        # One parent waits in a living runner, which would never look by itself.
        await harness.left_by(alive, "parent", created(), claimed("alive"), *both)
        ends: tuple[e.Body, ...] = (e.WorkflowCompleted(), e.WorkflowFailed(error=e.ErrorInfo("ValueError", "no")))
        for number, end in enumerate(ends, 1):
            mine = created(parent=e.Parent(RunId("parent"), both[number - 1].leaf))
            await harness.plant(f"child-{number}", mine, claimed("r1"), end, task=Ended())
        found = await reconcile(harness.client)
        assert (found.replayed, found.skipped) == (1, 0)
        sent = await harness.store.inbox(RunId("parent"))
        assert sorted(each.kind for each in sent) == ["child_finished", "child_finished"]
        assert (await harness.record("parent")).holder == "alive"
        again = await reconcile(harness.client)
        assert (again.replayed, len(await harness.store.inbox(RunId("parent")))) == (0, 2)

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reconcile_wakes_what_is_overdue_or_was_written_to(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        late, early = harness.clock.now() - 100.0, harness.clock.now() + 100.0
        error = e.ErrorInfo("OSError", "once")
        leaf = started("s#1").leaf
        bodies: dict[str, tuple[e.Body, ...]] = {
            "timer": (e.TimerStarted(leaf=leaf, due_at=late),),
            "retry": (started("s#1"), e.RetryScheduled(leaf=leaf, attempt=1, due_at=late, error=error)),
            "early": (e.TimerStarted(leaf=leaf, due_at=early),),
        }
        for name, more in bodies.items():
            await harness.plant(name, created(), claimed("r1"), *more)
        assert (await reconcile(harness.client)).replayed == 2
        assert await harness.due() == ["retry", "timer"]

    play(tmp_path, test, kind)


def test_eight_sweepers_recover_a_thousand_orphans_once_each(tmp_path: Path) -> None:
    many, crowd = 1_000, 8

    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        policies = ("resume", "restart", "fail", "hold")
        for number in range(many):
            await harness.left_by(dead, f"run-{number:04}", created(policies[number % 4]), *UNDER_WAY)
        stores = [await open_store(harness.store.name, harness.clock) for _ in range(crowd)]
        try:
            found = await asyncio.gather(
                *(sweep(harness.client_of(store, f"sweeper-{place}"), NOW) for place, store in enumerate(stores))
            )
        finally:
            for store in stores:
                await store.close()
        done: Counter[str] = Counter()
        for each in found:
            done.update(counts(each))
        assert (done["restarted"], done["failed"], done["held"], done["unknown"]) == (250, 250, 250, 0)
        assert done["resumed"] == 250
        once = {"restart": "branch_created", "fail": "workflow_failed", "hold": "paused"}
        for number in range(many):
            policy, types = policies[number % 4], await harness.types(f"run-{number:04}", after=5)
            assert types.count(once.get(policy, "none")) == (policy != "resume"), (number, types)
            assert types.count("claimed") <= 1

    play(tmp_path, test)


def test_a_sweep_costs_the_same_however_much_has_finished(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        assert isinstance(harness.store, SqliteStore)
        asked: list[str] = []
        for lane in (harness.store._reader, harness.store._writer):
            lane._connection.set_trace_callback(asked.append)

        async def cost(batch: str) -> tuple[int, int]:
            dead = await harness.runner(f"r-{batch}", dead=True)
            for number in range(10):
                await harness.left_by(dead, f"{batch}-{number}", created("hold"), *UNDER_WAY)
            asked.clear()
            found = await sweep(harness.client, NOW)
            return len(asked), found.held

        few = await cost("few")
        for number in range(300):
            await harness.plant(f"old-{number}", created(), claimed("r1"), e.WorkflowCompleted(), task=Ended())
        many = await cost("many")
        assert many == few

    play(tmp_path, test)


def test_a_sweeper_that_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("run-1", created(), claimed("r1"), task=Released(due_at=0.0, now=0.0))
        down = True

        class Flaky:
            def __getattr__(self, name: str) -> Any:
                found = getattr(harness.store, name)

                async def find_runs(*args: Any, **kwargs: Any) -> Any:
                    if down:
                        raise Unavailable("no answer (a test)")
                    return await found(*args, **kwargs)

                return find_runs if name == "find_runs" else found

        sweeper = Sweeper(cast(Store, Flaky()), harness.deaths, client=harness.client_of(cast(Store, Flaky())))
        with pytest.raises(Unavailable):
            await sweeper.whole()
        health = sweeper.health()
        assert health is not None and health.failing and health.at is None
        down = False
        await sweeper.whole()
        health = sweeper.health()
        assert health is not None and not health.failing and health.at == harness.clock.now()

    play(tmp_path, test)


def test_one_sweep_can_be_made_piece_by_piece(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await left_behind(harness)
        piece = Sweep(harness.client, FailureDetector(harness.store, harness.deaths, harness.clock), NOW)
        await piece.orphans()
        assert piece.tally.total().scanned == 0
        await piece.dead()
        assert piece.tally.total().dead_runners == 1

    play(tmp_path, test)
