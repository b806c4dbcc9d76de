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

from .yard import KINDS, Yard, created, play

UNDER_WAY = (claimed("r1"), started("a#1"), completed("a#1"), started("b#1"))
NOW = SweepOptions(stale_after_s=0.0)


def counts(found: Swept) -> dict[str, int]:
    words = ("scanned", "healthy", "restarted", "resumed", "failed", "held", "skipped", "unknown")
    return {word: getattr(found, word) for word in words if getattr(found, word)}


async def _no_reconcile(*args: Any, **kwargs: Any) -> Reconciled:
    return Reconciled()


async def left_behind(yard: Yard) -> None:
    """One of each."""
    dead = await yard.runner("r1", dead=True)
    for policy in ("resume", "restart", "fail", "hold"):
        await yard.left_by(dead, f"to-{policy}", created(policy), *UNDER_WAY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_counts_what_it_did_and_a_second_one_finds_nothing(tmp_path: Path, kind: str) -> None:
    async def test(yard: Yard) -> None:
        await left_behind(yard)
        await yard.runner("able", workflows={"order": ("",)})
        found = await sweep(yard.client, NOW)
        assert counts(found) == {"scanned": 4, "restarted": 1, "resumed": 1, "failed": 1, "held": 1}
        assert (found.dead_runners, found.troubles) == (1, ())
        again = await sweep(yard.client, NOW)
        assert counts(again) == {"scanned": 2, "healthy": 2}
        assert await yard.due() == ["to-restart", "to-resume"]

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_says_what_a_sweep_would_do_and_changes_nothing(tmp_path: Path, kind: str) -> None:
    async def test(yard: Yard) -> None:
        await left_behind(yard)
        before = [await yard.record(f"to-{policy}") for policy in ("resume", "restart", "fail", "hold")]
        found = await scan(yard.client, ScanOptions(stale_after_s=0.0))
        assert {each.run_id: each.action for each in found.found} == {
            f"to-{policy}": policy for policy in ("resume", "restart", "fail", "hold")
        }
        dry = await sweep(yard.client, SweepOptions(stale_after_s=0.0, dry_run=True))
        assert counts(dry) == {"scanned": 4, "restarted": 1, "resumed": 1, "failed": 1, "held": 1}
        after = [await yard.record(f"to-{policy}") for policy in ("resume", "restart", "fail", "hold")]
        assert before == after
        assert len(await yard.store.runners()) == 1

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_notices_a_run_without_progress_as_a_sweep_does(tmp_path: Path, kind: str) -> None:
    async def test(yard: Yard) -> None:
        alive = await yard.runner("r1")
        await yard.left_by(alive, "slow", created(), *UNDER_WAY)
        yard.clock.advance(100.0)
        await yard.store.beat(alive, Beat(number=1))
        told: list[Recovery] = []
        detector = FailureDetector(yard.store, yard.deaths, yard.clock, once=True)
        swept = Sweep(yard.client, detector, SweepOptions(stale_after_s=60.0, dry_run=True), told=told.append)
        await swept.whole()
        (noticed,) = told
        found = await scan(yard.client, ScanOptions(stale_after_s=60.0))
        assert (found.scanned, found.healthy, found.found) == (1, 1, ())
        (notice,) = found.notices
        assert (notice.run_id, notice.action, notice.note) == ("slow", "none", noticed.note)
        assert [each.code for each in notice.findings if not each.trouble and "still_for_s" in each.evidence] == ["H3"]

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_orphans_are_adopted_unless_their_policy_says_otherwise(tmp_path: Path, kind: str) -> None:
    async def test(yard: Yard) -> None:
        ghost = await yard.runner("ghost")
        await yard.plant("on-1", created(), *UNDER_WAY, task=Held(ghost))
        await yard.plant("end-1", created("fail"), *UNDER_WAY, task=Held(cast(Any, "never-registered")))
        yard.deaths.dead.add("ghost")
        found = await sweep(yard.client, NOW)
        assert (found.resumed, found.failed) == (1, 1)
        assert await yard.due() == ["on-1"]

    play(tmp_path, test, kind)


def test_runs_of_other_stacks_and_envs_are_left_alone(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=yard.clock.now() - 100.0)
        places = {"a": ("one", None), "b": ("two", None), "c": (None, None), "d": ("one", "test")}
        for name, (stack, env) in places.items():
            await yard.plant(f"run-{name}", created(stack=stack, env=env), claimed("r1"), timer)

        async def seen(**scope: str | None) -> set[str]:
            found = await scan(yard.client, ScanOptions(stale_after_s=0.0, scope=Scope(**scope)))
            return {each.run_id[-1] for each in found.found}

        assert await seen() == {"a", "b", "c"}
        assert await seen(stack="one") == {"a", "c"}
        assert await seen(stack="two", env="test") == set()
        assert await seen(env="test") == {"d"}
        found = await sweep(yard.client, SweepOptions(stale_after_s=0.0, scope=Scope(env="test")))
        assert (found.scanned, found.resumed) == (1, 1)

    play(tmp_path, test)


def test_a_limit_counts_recoveries_and_starves_nobody(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        dead = await yard.runner("r1", dead=True)
        for number in range(7):
            await yard.left_by(dead, f"run-{number}", created(), *UNDER_WAY)
        limited = SweepOptions(stale_after_s=0.0, limit=3)
        for expected, more in ((3, True), (3, True), (1, False)):
            found = await sweep(yard.client, limited)
            assert (found.resumed, found.more) == (expected, more)
        assert len(await yard.due()) == 7
        assert [each.info.id for each in await yard.store.runners()] == ["looker"]

    play(tmp_path, test)


def test_a_bounded_sweep_goes_on_where_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.recovery.sweep.sweep.SWEEP_PAGES_MAX", 1)
    monkeypatch.setattr("buoy.recovery.sweep.scan._PAGE", 2)

    async def test(yard: Yard) -> None:
        timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=yard.clock.now() - 100.0)
        for number in range(5):
            await yard.plant(f"run-{number}", created(), claimed("r1"), timer)
        # It would wake them all at once.
        options = SweepOptions(stale_after_s=0.0, looks_max=2)
        sweeper = Sweeper(yard.store, yard.deaths, client=yard.client, options=options)
        monkeypatch.setattr("buoy.recovery.sweep.sweeper.reconcile", _no_reconcile)
        seen = [(await sweeper.whole()).swept.resumed for _ in range(3)]
        assert seen == [2, 2, 1]
        health = sweeper.health()
        assert health is not None and (health.sweeps, health.failing) == (3, False)

    play(tmp_path, test)


def test_an_error_about_one_run_is_unknown_and_stops_no_other(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        dead = await yard.runner("r1", dead=True)
        for number in range(3):
            await yard.left_by(dead, f"run-{number}", created("restart"), *UNDER_WAY)

        class Blind:
            def __getattr__(self, name: str) -> Any:
                found = getattr(yard.store, name)

                async def events(run_id: RunId, after: int = 0, limit: int | None = None) -> Any:
                    if run_id == "run-1":
                        raise Unavailable("no answer (a test)")
                    return await found(run_id, after, limit)

                return events if name == "events" else found

        found = await sweep(yard.client_of(cast(Store, Blind())), NOW)
        assert counts(found) == {"scanned": 3, "restarted": 2, "unknown": 1}
        assert any("run-1" in each and "no answer" in each for each in found.troubles)
        assert (await yard.record("run-1")).holder == "r1", "what could not be read must be left as it is"
        assert counts(await sweep(yard.client, NOW))["restarted"] == 1

    play(tmp_path, test)


def test_a_claim_that_was_lost_is_skipped(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        dead = await yard.runner("r1", dead=True)
        await yard.left_by(dead, "run-1", created("restart"), *UNDER_WAY)

        class Slow:
            """Another sweeper is quicker, just before the commit."""

            def __getattr__(self, name: str) -> Any:
                found = getattr(yard.store, name)

                async def commit(writes: Any) -> Any:
                    assert (await sweep(yard.client_of(yard.store, "sweeper-2"), NOW)).restarted == 1
                    return await found(writes)

                return commit if name == "commit" else found

        found = await sweep(yard.client_of(cast(Store, Slow())), NOW)
        assert counts(found)["skipped"] == 1
        assert (await yard.types("run-1")).count("branch_created") == 1

    play(tmp_path, test)


def test_a_thing_that_was_rated_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def nap(span_s: float) -> None:
        slept.append(span_s)
        await real(0)

    async def test(yard: Yard) -> None:
        dead = await yard.runner("r1", dead=True)
        for number in range(4):
            await yard.left_by(dead, f"run-{number}", created(), *UNDER_WAY)
        monkeypatch.setattr("buoy.recovery.sweep.sweep.asyncio.sleep", nap)
        found = await sweep(yard.client, SweepOptions(stale_after_s=0.0, rate=2.0))
        assert found.resumed == 4
        assert slept.count(0.5) == 4
        # Each has its own claim: the crash is in its log.
        assert (await yard.types("run-0"))[-1] == "claimed"

    play(tmp_path, test)


def test_a_reconcile_replays_ends_of_children_that_were_lost(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        alive = await yard.runner("alive", workflows={"order": ("",)})

        def bears(number: int) -> e.ChildStarted:
            leaf = started(f"c#{number}").leaf
            return e.ChildStarted(leaf=leaf, child=RunId(f"child-{number}"), workflow="order", input=created().input)

        both = (bears(1), bears(2))
        # One parent waits in a living runner, which would never look by itself.
        await yard.left_by(alive, "parent", created(), claimed("alive"), *both)
        ends: tuple[e.Body, ...] = (e.WorkflowCompleted(), e.WorkflowFailed(error=e.ErrorInfo("ValueError", "no")))
        for number, end in enumerate(ends, 1):
            mine = created(parent=e.Parent(RunId("parent"), both[number - 1].leaf))
            await yard.plant(f"child-{number}", mine, claimed("r1"), end, task=Ended())
        found = await reconcile(yard.client)
        assert (found.replayed, found.skipped) == (1, 0)
        sent = await yard.store.inbox(RunId("parent"))
        assert sorted(each.kind for each in sent) == ["child_finished", "child_finished"]
        assert (await yard.record("parent")).holder == "alive"
        again = await reconcile(yard.client)
        assert (again.replayed, len(await yard.store.inbox(RunId("parent")))) == (0, 2)

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reconcile_wakes_what_is_overdue_or_was_written_to(tmp_path: Path, kind: str) -> None:
    async def test(yard: Yard) -> None:
        late, early = yard.clock.now() - 100.0, yard.clock.now() + 100.0
        error = e.ErrorInfo("OSError", "once")
        leaf = started("s#1").leaf
        bodies: dict[str, tuple[e.Body, ...]] = {
            "timer": (e.TimerStarted(leaf=leaf, due_at=late),),
            "retry": (started("s#1"), e.RetryScheduled(leaf=leaf, attempt=1, due_at=late, error=error)),
            "early": (e.TimerStarted(leaf=leaf, due_at=early),),
        }
        for name, more in bodies.items():
            await yard.plant(name, created(), claimed("r1"), *more)
        assert (await reconcile(yard.client)).replayed == 2
        assert await yard.due() == ["retry", "timer"]

    play(tmp_path, test, kind)


def test_eight_sweepers_recover_a_thousand_orphans_once_each(tmp_path: Path) -> None:
    many, crowd = 1_000, 8

    async def test(yard: Yard) -> None:
        dead = await yard.runner("r1", dead=True)
        policies = ("resume", "restart", "fail", "hold")
        for number in range(many):
            await yard.left_by(dead, f"run-{number:04}", created(policies[number % 4]), *UNDER_WAY)
        stores = [await open_store(yard.store.name, yard.clock) for _ in range(crowd)]
        try:
            found = await asyncio.gather(
                *(sweep(yard.client_of(store, f"sweeper-{place}"), NOW) for place, store in enumerate(stores))
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
            policy, types = policies[number % 4], await yard.types(f"run-{number:04}", after=5)
            assert types.count(once.get(policy, "none")) == (policy != "resume"), (number, types)
            assert types.count("claimed") <= 1

    play(tmp_path, test)


def test_a_sweep_costs_the_same_however_much_has_finished(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        assert isinstance(yard.store, SqliteStore)
        asked: list[str] = []
        for lane in (yard.store._reader, yard.store._writer):
            lane._connection.set_trace_callback(asked.append)

        async def cost(batch: str) -> tuple[int, int]:
            dead = await yard.runner(f"r-{batch}", dead=True)
            for number in range(10):
                await yard.left_by(dead, f"{batch}-{number}", created("hold"), *UNDER_WAY)
            asked.clear()
            found = await sweep(yard.client, NOW)
            return len(asked), found.held

        few = await cost("few")
        for number in range(300):
            await yard.plant(f"old-{number}", created(), claimed("r1"), e.WorkflowCompleted(), task=Ended())
        many = await cost("many")
        assert many == few

    play(tmp_path, test)


def test_a_sweeper_that_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        await yard.plant("run-1", created(), claimed("r1"), task=Released(due_at=0.0, now=0.0))
        down = True

        class Flaky:
            def __getattr__(self, name: str) -> Any:
                found = getattr(yard.store, name)

                async def find_runs(*args: Any, **kwargs: Any) -> Any:
                    if down:
                        raise Unavailable("no answer (a test)")
                    return await found(*args, **kwargs)

                return find_runs if name == "find_runs" else found

        sweeper = Sweeper(cast(Store, Flaky()), yard.deaths, client=yard.client_of(cast(Store, Flaky())))
        with pytest.raises(Unavailable):
            await sweeper.whole()
        health = sweeper.health()
        assert health is not None and health.failing and health.at is None
        down = False
        await sweeper.whole()
        health = sweeper.health()
        assert health is not None and not health.failing and health.at == yard.clock.now()

    play(tmp_path, test)


def test_one_sweep_can_be_made_piece_by_piece(tmp_path: Path) -> None:
    async def test(yard: Yard) -> None:
        await left_behind(yard)
        piece = Sweep(yard.client, FailureDetector(yard.store, yard.deaths, yard.clock), NOW)
        await piece.orphans()
        assert piece.tally.total().scanned == 0
        await piece.dead()
        assert piece.tally.total().dead_runners == 1

    play(tmp_path, test)
