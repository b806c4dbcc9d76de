"""Recover: diagnoses one run, plans its recovery and applies the plan.

Invariants: a run that a live process drives is not changed. A plan that was shown is applied only as it was shown: if
the run needs another plan by then, nothing is done.
"""

from __future__ import annotations

import msgspec

from buoy.core.diagnosis.findings import Finding
from buoy.core.explain import compensation
from buoy.core.ids import BranchId, LeafId, RunId, RunnerId
from buoy.core.remedy.plan import RecoveryPlan
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import CorruptLog, StoreUnusable, Unavailable
from buoy.recovery.failure_detector import FailureDetector, proven_dead
from buoy.recovery.recover import Recovery, recover_run
from buoy.recovery.sweep.scan import held_by

# Completed steps that could be undone, with the names of their compensations.
Standing = dict[LeafId, str]


class PlanView(msgspec.Struct, frozen=True):
    """A plan as programs get it. `not_undone`: completed steps whose effects stay, though they could be undone."""

    id: str
    branch: BranchId | None
    parent: BranchId | None
    cutoff_seq: int | None
    kept: tuple[LeafId, ...]
    dropped: tuple[LeafId, ...]
    again: tuple[LeafId, ...]
    not_undone: tuple[LeafId, ...]


class RecoveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A recovery as programs get it."""

    dry_run: bool | msgspec.UnsetType = msgspec.UNSET
    run_id: RunId
    needed: bool
    new_branch_id: BranchId | None
    reason: str | None
    error: str | None
    note: str | None
    action: str
    findings: tuple[Finding, ...]
    plan: PlanView | msgspec.UnsetType = msgspec.UNSET


class Recovered(msgspec.Struct, frozen=True):
    """What was found and done. `standing`: completed steps that could be undone, before the recovery."""

    recovery: Recovery
    standing: Standing
    dry_run: bool

    def view(self) -> RecoveryView:
        return recovery_view(self.recovery, self.standing, dry_run=self.dry_run)

    @property
    def not_undone(self) -> Standing:
        plan = self.recovery.plan
        return {} if plan is None else not_undone(plan, self.standing)


async def recover(client: Client, run_id: str, *, dry_run: bool = False, shown: str | None = None) -> Recovered:
    """Checks a run, and recovers it if something is wrong with it.

    `shown`: the id of a plan that a dry run gave. Only that plan is applied; `WrongState` if it is another one now.
    """
    record = await client.record(run_id)
    standing, holder = await _standing(client, record.document.run_id), record.holder
    found = await recover_run(client, run_id, dry_run=dry_run, shown=shown)
    if holder is not None and not dry_run:
        await strike_off(client, holder)
    return Recovered(found, standing, dry_run)


async def strike_off(client: Client, runner: RunnerId) -> None:
    """Declares a dead runner gone if it holds nothing any more, as a sweeper does."""
    record = next((each for each in await client.store.runners() if each.info.id == runner), None)
    proof = None if record is None else await proven_dead(client.liveness, record)
    if record is None or proof is None:
        return
    async for _ in held_by(client.store, runner):
        return
    await FailureDetector(client.store, client.liveness, client.clock).declare_dead(record, proof)


async def _standing(client: Client, run_id: RunId) -> Standing:
    """Completed steps that could be undone, before the recovery. The recovery reports a log that cannot be read."""
    try:
        return compensation.standing(await read_log(client.store, run_id))
    except (Unavailable, StoreUnusable, CorruptLog):
        return {}


def recovery_view(
    found: Recovery, standing: Standing | None = None, *, dry_run: bool | msgspec.UnsetType = msgspec.UNSET
) -> RecoveryView:
    """A recovery as `--json` gives it."""
    plan = found.plan
    return RecoveryView(
        dry_run=dry_run,
        run_id=found.run_id,
        needed=found.needed,
        new_branch_id=found.new_branch_id,
        reason=found.reason,
        error=found.error,
        note=found.note,
        action=found.action,
        findings=found.findings,
        plan=msgspec.UNSET if plan is None else _plan_view(plan, standing or {}),
    )


def _plan_view(plan: RecoveryPlan, standing: Standing) -> PlanView:
    return PlanView(
        id=plan.id,
        branch=plan.branch,
        parent=plan.parent,
        cutoff_seq=plan.cutoff_seq,
        kept=plan.kept,
        dropped=dropped(plan),
        again=plan.again,
        not_undone=tuple(not_undone(plan, standing)),
    )


def dropped(plan: RecoveryPlan) -> tuple[LeafId, ...]:
    """The leaves that the plan drops. A restart drops all of them by its cutoff alone."""
    return plan.again if plan.action == "restart" else plan.dropped


def not_undone(plan: RecoveryPlan, standing: Standing) -> Standing:
    """Steps that could be undone and are not: the plan ends the run, or executes them again."""
    if plan.action == "fail":
        return standing
    return {leaf: name for leaf, name in standing.items() if leaf in dropped(plan)}


def done_text(action: str) -> str:
    """`it was ...`"""
    return {
        "resume": "put back into its queue, to continue",
        "retry": "put back into its queue, to run the failed step again",
        "compensate": "put back into its queue, to undo what is done and fail",
        "restart": "restarted from the beginning",
        "fail": "failed",
        "hold": "held for a person",
        "quarantine": "quarantined",
    }.get(action, action)
