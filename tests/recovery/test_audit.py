"""The audit of recoveries: every run that was brought back is in it, with a branch or without one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from buoy.core.ids import BranchId
from buoy.core.log import events as e
from buoy.operations.inspect.recoveries import recovery_audit, run_recoveries
from buoy.recovery.recover import recover_run
from buoy.wiring.store_tracing import StoreCall, traced
from tests.core.logbook import asked, branched, claimed, completed, started

from .harness import KINDS, RecoveryHarness, created, play
from .test_sweep import UNDER_WAY

PROOF: dict[str, Any] = {"runner": "r1", "pid": 7, "proof": "lock free"}
WAITED = (created(), claimed("r1"), asked("ask#1"))
TAKEN = e.Claimed(runner="r2", cause="taken_over", evidence=PROOF)


def recovered(finding: str = "A1") -> e.WorkflowRecovered:
    return e.WorkflowRecovered(
        reason=f"{finding}: odd", previous_branch=BranchId(0), new_branch=BranchId(1), cutoff_event=2, finding=finding
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_takeover_without_a_branch_is_in_the_audit(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("waited", *WAITED, TAKEN)
        (entry,) = (await recovery_audit(harness.client)).recoveries
        assert (entry.run_id, entry.seq, entry.event) == ("waited", 4, "claimed")
        assert (entry.finding, entry.actor) == ("H1", "r2")
        assert entry.evidence == PROOF and "r1" in entry.reason and "lock free" in entry.reason
        assert (entry.previous_branch, entry.new_branch, entry.cutoff_event) == (0, 0, 3), "it hides nothing"
        assert (await run_recoveries(harness.client, "waited")).recoveries == (entry,)

    play(tmp_path, test, kind)


def test_a_recovery_with_a_branch_is_one_entry_and_not_its_claim_too(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        claim = e.Claimed(runner="sweeper", cause="recovered", evidence={"finding": "A1"})
        await harness.plant("branched", *WAITED, claim, branched(1, 2), recovered())
        (entry,) = (await recovery_audit(harness.client)).recoveries
        assert (entry.event, entry.finding, entry.new_branch) == ("workflow_recovered", "A1", 1)

    play(tmp_path, test)


@pytest.mark.parametrize("policy", ["fail", "hold", "restart"])
def test_what_a_policy_did_instead_of_continuing_is_in_the_audit(tmp_path: Path, policy: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "lost", created(policy), *UNDER_WAY)
        done = await recover_run(harness.client, "lost")
        assert done.action == policy
        (entry,) = (await recovery_audit(harness.client)).recoveries
        assert (entry.finding, entry.policy, entry.actor) == ("H1", policy, "sweeper-1")

    play(tmp_path, test)


def test_an_orphan_that_was_put_back_is_in_the_audit_with_the_reason(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        orphan = e.Claimed(runner="r2", cause="taken_over", evidence={"orphan": "it has no task"})
        await harness.plant("orphan", *WAITED, orphan)
        (entry,) = (await recovery_audit(harness.client)).recoveries
        assert (entry.finding, entry.reason) == (None, "it has no task")

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_logs_of_runs_that_needed_nothing_are_not_read(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        woken = [e.Claimed(runner="r1", cause=cause) for cause in ("woken", "interrupted", "resumed", "requested")]
        for number in range(20):
            await harness.plant(f"quiet-{number}", created(), claimed("r1"), started("a#1"), completed("a#1"), *woken)
        await harness.plant("waited", *WAITED, TAKEN)
        calls: Counter[str] = Counter()

        def count(call: StoreCall) -> None:
            calls[call.call] += 1

        client = harness.client_of(traced(harness.store, harness.clock, count))
        assert [each.run_id for each in (await recovery_audit(client)).recoveries] == ["waited"]
        assert calls["events"] == 1

    play(tmp_path, test, kind)


def test_a_document_of_an_earlier_version_hides_no_takeover(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("old", *WAITED, TAKEN, lie={"v": 4, "takeovers": 0})
        await harness.plant("first", *WAITED, lie={"v": 4, "takeovers": 0})
        assert [each.run_id for each in (await recovery_audit(harness.client)).recoveries] == ["old"]

    play(tmp_path, test)
