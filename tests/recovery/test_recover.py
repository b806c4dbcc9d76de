"""One run through the pipeline: what is found, what is appended, and that nothing happens to the living."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.core.remedy.plan import RecoveryPlan
from buoy.ports.maintenance import RunCopy, TaskFound
from buoy.ports.records import Held, Released
from buoy.recovery import remedies
from buoy.recovery.recover import examine, recover_run
from buoy.recovery.sweep.sweep import SweepOptions, sweep
from buoy.recovery.sweep.tally import Swept
from tests.core.logbook import answered, asked, claimed, completed, started

from .harness import KINDS, RecoveryHarness, created, play

UNDER_WAY = (claimed("r1"), started("a#1"), completed("a#1"), started("b#1"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("policy", "action", "status", "more"),
    [
        ("resume", "resume", "running", ["claimed"]),
        ("restart", "restart", "running", ["claimed", "branch_created", "workflow_recovered"]),
        ("fail", "fail", "failed", ["claimed", "workflow_failed"]),
        ("hold", "hold", "paused", ["claimed", "paused"]),
    ],
)
def test_what_a_dead_runner_left_is_handled_as_its_policy_says(
    tmp_path: Path, kind: str, policy: str, action: str, status: str, more: list[str]
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        run = await harness.left_by(dead, "run-1", created(policy), *UNDER_WAY)
        found = await recover_run(harness.client, run)
        assert (found.needed, found.action, found.error) == (True, action, None)
        assert found.reason is not None and found.reason.startswith("H1: runner r1")
        assert await harness.types(run, after=5) == more
        log = await harness.log(run)
        claim = log[5].body
        assert isinstance(claim, e.Claimed)
        assert (claim.runner, claim.cause, claim.evidence["proof"]) == ("sweeper-1", "taken_over", "lock free")
        assert (await harness.record(run)).document.status == status
        assert await harness.due() == (["run-1"] if status == "running" else [])
        again = await recover_run(harness.client, run)
        assert (again.needed, len(await harness.log(run))) == (False, len(log))

    play(tmp_path, test, kind)


def test_a_restart_hides_everything_and_says_so(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        run = await harness.left_by(dead, "run-1", created("restart"), *UNDER_WAY)
        found = await recover_run(harness.client, run)
        assert found.new_branch_id == 1
        recovered = (await harness.log(run))[-1].body
        assert isinstance(recovered, e.WorkflowRecovered)
        assert (recovered.cutoff_event, recovered.previous_branch, recovered.new_branch) == (0, 0, 1)
        assert (recovered.policy, recovered.finding, recovered.actor) == ("restart", "H1", "sweeper-1")
        assert (await harness.state(run)).leaves == {}

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_done_under_a_living_owner(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        alive = await harness.runner("r1")
        run = await harness.left_by(
            alive, "run-1", created("fail"), *UNDER_WAY, lie={"status": Status.AWAITING_INPUT, "open": ()}
        )
        harness.clock.advance(10_000.0)
        found = await recover_run(harness.client, run, stale_after_s=600.0)
        assert not found.needed
        assert len(await harness.log(run)) == 5
        assert (await harness.record(run)).holder == "r1"

    play(tmp_path, test, kind)


def test_a_plan_made_before_the_run_was_taken_changes_nothing_under_its_owner(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        alive = await harness.runner("r2")
        run = await harness.left_by(dead, "run-1", created("fail"), *UNDER_WAY)
        seen = await examine(harness.client, run)
        finding = next(each for each in seen.findings if each.code == "H1")
        await harness.left_by(alive, "run-2", created("fail"), claimed("r2"), started("a#1"))
        taken = await examine(harness.client, RunId("run-2"))
        for code in ("H1", "Q4"):
            found = msgspec.structs.replace(finding, code=code)
            plan = RecoveryPlan(run_id=RunId("run-2"), finding=found, action="resume", reason="an old look")
            assert not await remedies.apply(harness.client, taken.record, taken.facts, plan, "sweeper-1")
        assert await harness.types("run-2") == ["workflow_created", "claimed", "step_started"]
        assert (await harness.record("run-2")).holder == "r2"

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_that_was_answered_is_not_asked_again(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await harness.plant(
            "run-1",
            created(),
            claimed("r1"),
            asked("ask#1"),
            answered("ask#1", message=None),
            lie={"status": Status.AWAITING_INPUT},
        )
        dry = await recover_run(harness.client, run, dry_run=True)
        assert dry.plan is not None and dry.plan.cutoff_seq == 4
        assert len(await harness.log(run)) == 4
        found = await recover_run(harness.client, run)
        assert found.needed and found.reason is not None and found.reason.startswith("A1")
        assert (found.new_branch_id, found.error) == (1, None)
        assert (await harness.state(run)).leaves["ask#1"].phase == "completed"  # type: ignore[index]
        assert (await harness.record(run)).document.status == "running"
        assert await harness.due() == ["run-1"]

    play(tmp_path, test, kind)


def test_a_lookup_that_fails_skips_the_run_and_says_why(tmp_path: Path) -> None:
    def broken(document: object) -> str:
        raise KeyError("deploying")

    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        run = await harness.left_by(dead, "run-1", created(), *UNDER_WAY)
        found = await recover_run(harness.client, run, policy=broken)
        assert (found.needed, found.action) == (True, "skip")
        assert found.error is not None and "deploying" in found.error
        assert len(await harness.log(run)) == 5

    play(tmp_path, test)


def test_a_callback_beats_what_the_run_says_of_itself(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        run = await harness.left_by(dead, "run-1", created("fail"), *UNDER_WAY)
        found = await recover_run(harness.client, run, policy=lambda document: "hold")
        assert found.action == "hold"
        pause = (await harness.record(run)).document.pause
        assert pause is not None and pause.reason == "hold"

    play(tmp_path, test)


def test_a_run_that_nobody_knows_fails_as_orphaned(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        run = await harness.left_by(dead, "run-1", created(""), *UNDER_WAY)
        found = await recover_run(harness.client, run)
        assert found.action == "fail"
        error = (await harness.record(run)).document.error
        assert error is not None and error.kind == "orphaned"

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_wake_up_is_made_good(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        due_at = harness.clock.now() + 60.0
        timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=due_at)
        run = await harness.plant("run-1", created(), claimed("r1"), timer)
        assert not (await recover_run(harness.client, run)).needed
        harness.clock.advance(120.0)
        found = await recover_run(harness.client, run)
        assert found.needed and found.reason is not None and found.reason.startswith("Q4")
        assert found.new_branch_id is None
        assert await harness.due() == ["run-1"]

    play(tmp_path, test, kind)


def _held_for_30_s(harness: RecoveryHarness) -> e.Paused:
    """The pause that a request to go back asks for. It ends by itself."""
    return e.Paused(reason="rewind", expires_at=harness.clock.now() + 30.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["resume", "restart"])
def test_a_run_that_a_dead_runner_left_in_a_pause_that_ends_by_itself_is_due(
    tmp_path: Path, kind: str, policy: str
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        run = await harness.left_by(dead, "run-1", created(policy), *UNDER_WAY, _held_for_30_s(harness))
        found = await recover_run(harness.client, run)
        assert (found.needed, found.error) == (True, None)
        assert await harness.due() == ["run-1"]  # the worker that takes it gives it back until the pause ends

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_whose_pause_should_have_ended_by_itself_is_due(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await harness.plant("run-1", created(), *UNDER_WAY, _held_for_30_s(harness))
        harness.clock.advance(120.0)
        found = await recover_run(harness.client, run)
        assert found.reason is not None and found.reason.startswith("Q4: its pause was to end by itself")
        assert found.error is None
        assert await harness.due() == ["run-1"]

    play(tmp_path, test, kind)


def test_the_task_of_an_interrupted_run_comes_back(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        stopped = e.Interrupted(signal="SIGTERM", runner="r1")
        run = await harness.plant("run-1", created("fail"), *UNDER_WAY, stopped)
        found = await recover_run(harness.client, run)
        assert (found.action, found.error) == ("resume", None)  # a graceful stop is no crash: the policy is not asked
        assert await harness.due() == ["run-1"]

    play(tmp_path, test)


def test_a_parent_hears_of_a_child_that_recovery_failed(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        bears = e.ChildStarted(
            leaf=started("c#1").leaf, child="child-1", workflow="order", input=created().input  # type: ignore[arg-type]
        )  # fmt: skip
        parent = await harness.plant("parent-1", created(), claimed("r1"), bears)
        mine = created("fail", parent=e.Parent(parent, bears.leaf))
        child = await harness.left_by(dead, "child-1", mine, *UNDER_WAY)
        assert (await recover_run(harness.client, child)).action == "fail"
        (message,) = await harness.store.inbox(parent)
        assert message.kind == "child_finished"
        # The child keeps its task until a worker has seen that nothing is owed any more.
        assert await harness.due() == ["child-1", "parent-1"]

    play(tmp_path, test)


def test_a_held_run_of_a_gone_runner_is_adopted_without_an_event(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("run-1", created(), *UNDER_WAY, task=Held(await harness.runner("ghost")))
        await harness.store.declare_dead("ghost", "stopped", cause="interrupted", evidence={})  # type: ignore[arg-type]
        await harness.plant("run-2", created(), claimed("r1"), task=Released(due_at=0.0, now=0.0))
        assert not (await recover_run(harness.client, "run-1")).needed
        assert len(await harness.log("run-1")) == 5

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_document_is_taken_in_only_when_that_is_asked_for(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = RunId("run-1")
        first = e.Event(1, harness.clock.now(), created(queue="slow"))
        told = msgspec.structs.replace(document(fold(run, [first])), status=Status.RUNNING, head_seq=7)
        copy = RunCopy(id="foreign", document=told, events=(), found=TaskFound("missing"))
        assert await harness.store.archive.import_run(copy)
        left = await recover_run(harness.client, run)
        assert (left.needed, left.action) == (True, "skip")
        assert left.error is not None and "--adopt" in left.error
        assert counted(await sweep(harness.client, SweepOptions(stale_after_s=0.0))) == (1, 0)
        assert await harness.log(run) == []
        assert counted(await sweep(harness.client, SweepOptions(stale_after_s=0.0, adopt=True))) == (0, 1)
        assert await harness.types(run) == ["workflow_created", "claimed"]
        assert (await harness.record(run)).document.queue == "slow"
        assert not (await recover_run(harness.client, run, adopt=True)).needed

    def counted(found: Swept) -> tuple[int, int]:
        return found.skipped, found.resumed

    play(tmp_path, test, kind)


def test_a_remedy_that_removes_nothing_is_applied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding is known again by its facts, however its sentence reads by then and however old it is."""
    applied: list[str] = []

    async def test(harness: RecoveryHarness) -> None:
        async def apply(client: object, record: object, facts: object, plan: RecoveryPlan, actor: str) -> bool:
            applied.append(plan.finding.code)
            harness.clock.advance(7.0)
            return True

        monkeypatch.setattr(remedies, "apply", apply)
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, "one", created(), *UNDER_WAY)
        done = await recover_run(harness.client, "one")
        assert applied == ["H1"] and done.needed
        assert str(done.error).startswith("H1: ")

    play(tmp_path, test)
