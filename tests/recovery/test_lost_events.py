"""A log that has lost its end: Buoy finds it, names both event numbers and records the loss before the repair. The run
continues from where its log ends.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import buoy
from buoy.core.diagnosis.health import Health
from buoy.core.explain.explain import explain
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.engine.read_log import read_log
from buoy.operations.maintenance.doctor import Doctor
from buoy.operations.maintenance.doctor_report import DoctorReport
from buoy.ports.records import FencedOut, Held, Write
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import read_fleet
from buoy.recovery.recover import recover_run
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from tests.core.logbook import claimed, completed, started
from tests.patience import PATIENCE_S

from .harness import KINDS, RecoveryHarness, created, play
from .losses import append_commit, lose, lost_end

SAID = "its document is at event 7, its log ends at 4: events 5 to 7 may have been lost"
DONE: list[str] = []
NOW = SweepOptions(stale_after_s=0.0)


async def examined(harness: RecoveryHarness, **how: bool) -> DoctorReport:
    return await Doctor(harness.client, **how, progress=lambda text: None).examine()


async def audit_of(harness: RecoveryHarness, run: str) -> e.WorkflowRecovered:
    (found,) = [event.body for event in await harness.log(run) if isinstance(event.body, e.WorkflowRecovered)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_told_by_every_way_of_looking_and_nothing_is_changed_by_it(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await lost_end(harness)
        before = await harness.record(run)
        facts, _ = await facts_of_run(harness.store, await read_fleet(harness.store, harness.deaths), before)
        told = explain(facts)
        assert any(SAID in text for text in told.wrong)
        assert any("first records in the log" in text for text in told.next)
        dry = await recover_run(harness.client, run, dry_run=True)
        assert dry.needed and SAID in (dry.reason or "") and dry.new_branch_id is None
        report = await examined(harness)
        assert [(each.code, each.run_id, each.fixed) for each in report.troubles] == [("R2", run, False)]
        assert SAID in report.troubles[0].text
        assert (await harness.record(run), len(await harness.log(run))) == (before, 4)

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["sweep", "recover", "fix", "rebuild"])
def test_the_loss_is_written_down_once_and_the_run_can_go_on(tmp_path: Path, kind: str, by: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await lost_end(harness)
        late = e.Event(5, 1.0, completed("b#1"))
        stuck = Write(run, 4, (late,), document(fold(run, [*await harness.log(run), late])))
        assert await harness.store.commit([stuck]) == [FencedOut(7)], "as it is, every append is fenced"
        for _ in range(2):
            match by:
                case "sweep":
                    await sweep(harness.client, NOW)
                case "recover":
                    await recover_run(harness.client, run)
                case _:
                    assert (await examined(harness, **{by: True})).healthy
        assert (await harness.types(run, after=4))[:2] == ["claimed", "workflow_recovered"]
        audit = await audit_of(harness, run)
        assert SAID in audit.reason
        assert (audit.finding, audit.cutoff_event, audit.previous_branch, audit.new_branch) == ("R2", 4, 0, 0)
        assert [audit.evidence[name] for name in ("document_head", "log_end", "lost_from", "lost_to")] == [7, 4, 5, 7]
        record, state = await harness.record(run), await harness.state(run)
        assert record.document == document(state)
        assert (await examined(harness)).healthy
        await append_commit(harness, run, (claimed("r2"), started("b#1")), Held(await harness.runner("r2")))

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_owner_is_still_judged_by_its_policy(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        run = await harness.left_by(dead, "run-1", created("hold"), claimed("r1"), started("a#1"))
        await append_commit(harness, run, (completed("a#1"), started("b#1")), Held(dead))
        await lose(harness.store, run, first_seq=4)
        await recover_run(harness.client, run)
        assert await harness.types(run, after=3) == ["claimed", "workflow_recovered", "claimed", "paused"]
        assert (await harness.record(run)).document.status is Status.PAUSED

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_living_owner_is_left_alone(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await lost_end(harness, task=Held(await harness.runner("r1")))
        assert (await recover_run(harness.client, run)).action == "none"
        report = await examined(harness, fix=True)
        assert [(each.code, each.fixed) for each in report.troubles] == [("R2", False)]
        assert len(await harness.log(run)) == 4

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_is_gone_is_told_and_never_taken_for_a_foreign_run(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await harness.plant("run-1", created(), claimed("r1"), started("a#1"))
        await lose(harness.store, run, first_seq=1)
        found = await recover_run(harness.client, run, adopt=True)
        assert (found.action, found.needed) == ("unknown", False)
        assert "its log is gone" in (found.error or "")
        facts, _ = await facts_of_run(
            harness.store, await read_fleet(harness.store, harness.deaths), await harness.record(run)
        )
        told = explain(facts)
        assert (told.health, "its log is gone" in told.wrong[0]) == (Health.UNKNOWN, True)
        report = await examined(harness, rebuild=True)
        told = [each for each in report.troubles if each.run_id == run and each.code == "R1"]
        assert told and "document is at event 3" in told[0].text
        assert report.foreign == 0
        assert await harness.log(run) == []

    play(tmp_path, test, kind)


@buoy.step
async def part(name: str) -> str:
    DONE.append(name)
    return name


@buoy.workflow
async def whole() -> list[str]:
    found = [await part("a"), await part("b")]
    await buoy.wait_signal("go")
    return [*found, await part("c")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_goes_on_from_where_the_log_ends(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/folder"
    run = RunId("run-1")
    DONE.clear()

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            async with buoy.open(url, workflows=[whole]) as app:
                await app.start_as(run, whole)
                while not any(isinstance(event.body, e.SignalWaited) for event in await read_log(app.store, run)):
                    await app.store.wait_for_change(0.02)
            async with buoy.connect(url) as client:
                log = await read_log(client.store, run)
                first_end = next(event.seq for event in log if isinstance(event.body, e.StepCompleted))
                firsts = [event.seq for event in log if event.nonce is not None and event.seq > first_end]
                for first in reversed(firsts):
                    await lose(client.store, run, first_seq=first)
                left = await read_log(client.store, run)
                assert first_end <= len(left) < len(log)
                assert (await recover_run(client, run)).needed
            async with buoy.open(url, workflows=[whole]) as app:
                await app.signal(run, "go")
                assert await (await app.get(run)).result() == ["a", "b", "c"]
        assert DONE == ["a", "b", "b", "c"], "what completed in lost events is done again, and nothing else"

    asyncio.run(main())
