"""Recovery log: one line of `logging` for each run that was brought back, under the name `buoy.recovery`.

Invariants: a line is written after the store has taken the recovery, never before; the facts are in `extra`, so that
no program has to read the text. The run's own log stays the record: this one is for people and for log collectors.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from buoy.core.ids import BranchId, RunId
from buoy.core.remedy.plan import RecoveryPlan

_LOG = logging.getLogger("buoy.recovery")


def note_recovery(
    plan: RecoveryPlan,
    *,
    reason: str,
    workflow: str,
    actor: str,
    branch: BranchId | None = None,
    error: str | None = None,
) -> None:
    """That what the plan says was done. `reason`, `branch`: also those of earlier remedies of the same recovery."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    made = branch if plan.branch is None else plan.branch
    facts = {
        "run_id": plan.run_id,
        "workflow": workflow,
        "finding": plan.finding.code,
        "action": plan.action,
        "reason": reason,
        "previous_branch": plan.parent if plan.branch is not None else None,
        "new_branch": made,
        "cutoff_event": plan.cutoff_seq,
        "actor": actor,
        "error": error,
    }
    cut = "" if plan.cutoff_seq is None else f" from event {plan.cutoff_seq}"
    created = "" if made is None else f". Created branch {made}{cut}"
    left = "" if error is None else f". Not all of it: {error}"
    _LOG.info("Recovered run %s (%s): %s%s%s", plan.run_id, plan.action, reason, created, left, extra=facts)


def note_release(run_id: RunId, *, finding: str, reason: str, actor: str) -> None:
    """That a run was put back into its queue, with nothing in its own log yet."""
    if _LOG.isEnabledFor(logging.INFO):
        facts = {"run_id": run_id, "finding": finding, "action": "resume", "reason": reason, "actor": actor}
        _LOG.info("Recovered run %s (resume): %s: %s", run_id, finding, reason, extra=facts)


def note_death(runner: str, number: int, named: Collection[RunId], *, reason: str, actor: str) -> None:
    """That a runner was declared dead and `number` runs were released. `named`: those whose ids are known."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    why = f"runner {runner}, which drove it, is dead: {reason}"
    # Fewer than named: some moved on before, and which ones is not known.
    surely = sorted(named) if len(named) <= number else []
    for run_id in surely:
        note_release(run_id, finding="H1", reason=why, actor=actor)
    rest = number - len(surely)
    if rest:
        facts = {"finding": "H1", "action": "resume", "reason": reason, "runner": runner, "runs": rest, "actor": actor}
        _LOG.info("Recovered %d runs (resume): H1: runner %s is dead: %s", rest, runner, reason, extra=facts)
