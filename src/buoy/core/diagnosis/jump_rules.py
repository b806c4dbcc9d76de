"""D1 and D2: branches that nothing leads to, and a jump whose branch is not the one that is active.

Invariant: any branch that began after a jump has settled it, so that a jump is taken back once and never again.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.diagnosis.case import Case
from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import BranchId
from buoy.core.log import events as e
from buoy.core.log.lineage import branches, current_branch


def jump_finding(case: Case) -> Finding | None:
    """The last jump, if its branch is not active by the log, or by the document that claims to be current."""
    if not case.judged:
        return None
    jump = next((event for event in reversed(case.log) if isinstance(event.body, e.JumpRequested)), None)
    if jump is None:
        return None
    body = jump.body
    assert isinstance(body, e.JumpRequested)
    later = [event for event in case.log if event.seq > jump.seq and isinstance(event.body, e.BranchCreated)]
    if any(isinstance(event.body, e.BranchCreated) and event.body.branch != body.new_branch for event in later):
        return None
    active = current_branch(case.log)
    began = any(event.branch == body.new_branch and not e.is_run_level(event.body) for event in case.log)
    if active == body.new_branch and (case.stored.branch == body.new_branch or began):
        return None
    return Finding(
        code="D2",
        trouble=True,
        reason=f"a jump to {body.to} was requested but its branch {body.new_branch} is not active",
        remedy="branch",
        evidence={
            "jump_event": jump.seq,
            "jump_to": body.to,
            "jump_branch": body.new_branch,
            "parent_branch": _before(case, body, active),
            "document_branch": case.stored.branch,
        },
    )


def _before(case: Case, jump: e.JumpRequested, active: BranchId) -> BranchId:
    """The branch on which the run was when the jump was asked for."""
    if active != jump.new_branch:
        return active
    made = branches(case.log).get(jump.new_branch)
    return active if made is None else made.parent


def stray_branches(case: Case) -> Iterator[Finding]:
    """D1: branches that the current lineage does not go through."""
    known = branches(case.log)
    on_the_way: set[BranchId] = set()
    branch = current_branch(case.log)
    while branch in known and branch not in on_the_way:
        on_the_way.add(branch)
        branch = known[branch].parent
    stray = sorted(set(known) - on_the_way)
    if stray:
        names = ", ".join(map(str, stray[:5]))
        yield Finding(
            code="D1",
            trouble=False,
            reason=f"no lineage goes through branch {names}: it does no harm",
            evidence={"branches": names, "current_branch": current_branch(case.log)},
        )
