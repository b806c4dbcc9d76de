"""Recovery plan: what is appended to a run's log about a finding, and what runs again because of it.

Invariants: a cutoff is inclusive, and 0 keeps nothing before it; the branch's parent is the branch that is current, but
for a jump that is taken back. Recovery never raises an epoch, so a question keeps its id and a payment its key. A
`workflow_recovered` event records each plan that hides history, and each loss of history. All other plans hide nothing.
Absent on purpose: the claim, the task and the commit; the caller makes them one write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from buoy.core.diagnosis.findings import Finding
from buoy.core.diagnosis.stable_points import asking_module, last_module_completed, last_stable, pending_questions
from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.lineage import branches, visible
from buoy.core.log.pause import until_asked
from buoy.core.log.renames import read_names
from buoy.core.log.state import State, fold
from buoy.core.remedy.kept_leaves import Split, split
from buoy.core.remedy.policy import Action, Decision
from buoy.core.spec.model import is_spec

_EXECUTED = ("step", "module", "compensation")
FROM_THE_START = "no stable event was found: it begins again from the start"


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A recovery that is not done yet. `bodies` come after the claim, in order."""

    run_id: RunId
    finding: Finding
    action: Action
    reason: str
    # The branch that is made; None: no history is hidden.
    branch: BranchId | None = None
    parent: BranchId = BranchId(0)
    cutoff_seq: int | None = None
    kept: tuple[LeafId, ...] = ()
    dropped: tuple[LeafId, ...] = ()
    # Leaves that will be executed or asked again, also those that are merely still open.
    again: tuple[LeafId, ...] = ()
    bodies: tuple[e.Body, ...] = ()
    # Whether the task is due at once; else the run is on hold, or has ended.
    wakes: bool = True
    ends: bool = False
    # Why nothing can be done, if so.
    error: str | None = None

    @property
    def id(self) -> str:
        """The same for plans with the same consequences: a person who saw one can ask for just that one."""
        facts = (self.run_id, self.finding.code, self.action, self.branch, self.parent, self.cutoff_seq)
        leaves = (self.kept, self.dropped, self.again)
        return sha256(msgspec.json.encode((facts, leaves, self.wakes, self.ends))).hexdigest()[:16]


def log_branch(log: Sequence[e.Event]) -> BranchId:
    """The branch on which the log's last branch event left the run."""
    made = [event.body.branch for event in log if isinstance(event.body, e.BranchCreated)]
    return made[-1] if made else BranchId(0)


def plan_recovery(
    run_id: RunId,
    log: Sequence[e.Event],
    finding: Finding,
    decision: Decision,
    actor: str = "",
    *,
    needs: Mapping[str, tuple[str, ...]] | None = None,
) -> RecoveryPlan:
    """What to append about that finding. `needs`: the graph of a spec, so that only what depends is run again."""
    match decision.action:
        case "skip":
            return _plain(run_id, log, finding, decision, wakes=False)
        case "restart":
            return _restart(run_id, log, finding, decision, actor)
        case "fail":
            return _fail(run_id, log, finding, decision)
        case "hold":
            return _pause(run_id, log, finding, decision, actor, "hold")
        case "quarantine":
            return _pause(run_id, log, finding, decision, actor, "poison")
        case "compensate":
            return _plain(run_id, log, finding, decision)
        case "resume" | "retry":
            return _go_on(run_id, log, finding, decision, actor, needs)


def _plain(
    run_id: RunId, log: Sequence[e.Event], finding: Finding, decision: Decision, *bodies: e.Body, wakes: bool = True
) -> RecoveryPlan:
    """Hides nothing. Open leaves are executed again."""
    state = fold(run_id, log)
    executing = [leaf.id for leaf in state.open.values() if leaf.kind in _EXECUTED and leaf.phase == "open"]
    return RecoveryPlan(
        run_id=run_id,
        finding=finding,
        action=decision.action,
        reason=finding.text(),
        parent=state.branch,
        again=tuple(executing) if wakes else (),
        bodies=bodies,
        wakes=wakes,
    )


def _fail(run_id: RunId, log: Sequence[e.Event], finding: Finding, decision: Decision) -> RecoveryPlan:
    text = f"{decision.why}; found: {finding.text()}"
    kind = decision.error_class
    name = "Orphaned" if kind == "orphaned" else "RecoveryRefused"
    leaf = finding.evidence.get("leaf") if finding.code == "A4" else None
    failed = e.WorkflowFailed(
        error=e.ErrorInfo(type=name, message=text, retryable=False, kind=kind),
        cause_leaf=None if leaf is None else LeafId(str(leaf)),
    )
    plan = _plain(run_id, log, finding, decision, failed, wakes=False)
    return msgspec.structs.replace(plan, ends=True)


def _pause(
    run_id: RunId, log: Sequence[e.Event], finding: Finding, decision: Decision, actor: str, reason: str
) -> RecoveryPlan:
    paused = e.Paused(reason=reason, detail=finding.text(), by=actor or None)
    plan = _plain(run_id, log, finding, decision, paused, wakes=False)
    unrecoverable = finding.reason if finding.code in ("E1", "E2") else None
    return msgspec.structs.replace(plan, error=unrecoverable)


def _go_on(
    run_id: RunId,
    log: Sequence[e.Event],
    finding: Finding,
    decision: Decision,
    actor: str,
    needs: Mapping[str, tuple[str, ...]] | None,
) -> RecoveryPlan:
    if finding.remedy == "bind":
        version, previous = str(finding.evidence.get("bind_to", "")), str(finding.evidence.get("version", ""))
        bound = e.VersionBound(version=version, previous=previous or None, detail=finding.text())
        return _plain(run_id, log, finding, decision, bound)
    if "lost_to" in finding.evidence:
        return _plain(run_id, log, finding, decision, _loss(log, finding, decision, actor))
    if finding.remedy not in ("branch", "retry"):
        return _plain(run_id, log, finding, decision)
    parent = _parent(log, finding)
    state, lineage = _on_branch(run_id, log, parent)
    cutoff, again = _cut(lineage, finding)
    found = split(state, lineage, cutoff, again, needs)
    return _branch(run_id, log, finding, decision, actor, parent, cutoff, found, "recovery")


def _loss(log: Sequence[e.Event], finding: Finding, decision: Decision, actor: str) -> e.WorkflowRecovered:
    """Records that events may have been lost. The branch stays, and the document may be rewritten after it."""
    here = log_branch(log)
    return e.WorkflowRecovered(
        reason=finding.text(),
        previous_branch=here,
        new_branch=here,
        cutoff_event=log[-1].seq,
        finding=finding.code,
        evidence=finding.evidence,
        policy=decision.policy,
        actor=actor,
    )


def _restart(run_id: RunId, log: Sequence[e.Event], finding: Finding, decision: Decision, actor: str) -> RecoveryPlan:
    """From the beginning. Answers stay: code finds them kept, a spec finds those whose message is unread."""
    parent = log_branch(log)
    state, _ = _on_branch(run_id, log, parent)
    leaves = [leaf for leaf in state.leaves.values() if leaf.kind != "compensation"]
    code = state.created is not None and not is_spec(state.created.workflow)
    kept = [leaf.id for leaf in leaves if code and leaf.kind == "ask" and leaf.phase == "completed"]
    found = Split(tuple(kept), (), tuple(leaf.id for leaf in leaves if leaf.id not in kept))
    return _branch(run_id, log, finding, decision, actor, parent, 0, found, "restart")


def _branch(
    run_id: RunId,
    log: Sequence[e.Event],
    finding: Finding,
    decision: Decision,
    actor: str,
    parent: BranchId,
    cutoff: int,
    found: Split,
    cause: str,
) -> RecoveryPlan:
    made = BranchId(max([0, *branches(log)]) + 1)
    reason = finding.text()
    if not cutoff and cause == "recovery":
        reason = f"{reason}; {FROM_THE_START}"
    created = e.BranchCreated(
        branch=made, parent=parent, cutoff_seq=cutoff, kept=found.kept, dropped=found.dropped, cause=cause
    )
    recovered = e.WorkflowRecovered(
        reason=reason,
        previous_branch=parent,
        new_branch=made,
        cutoff_event=cutoff,
        finding=finding.code,
        evidence=finding.evidence,
        policy=decision.policy,
        actor=actor,
    )
    return RecoveryPlan(
        run_id=run_id,
        finding=finding,
        action=decision.action,
        reason=reason,
        branch=made,
        parent=parent,
        cutoff_seq=cutoff,
        kept=found.kept,
        dropped=found.dropped,
        again=found.again,
        bodies=(created, recovered),
        wakes=not until_asked(fold(run_id, log).pause),
    )


def _parent(log: Sequence[e.Event], finding: Finding) -> BranchId:
    """The branch to continue from; for a jump that did not take effect the one from before it."""
    named = finding.evidence.get("parent_branch")
    if finding.code == "D2" and isinstance(named, int) and (named == 0 or named in branches(log)):
        return BranchId(named)
    return log_branch(log)


def _on_branch(run_id: RunId, log: Sequence[e.Event], branch: BranchId) -> tuple[State, list[e.Event]]:
    """The state of a branch, and what of the log it sees."""
    events, names = read_names(log)
    lineage = visible(events, branch)
    shown = {event.seq for event in lineage}
    state = State(run_id=run_id, names=names)
    for event in events:
        if event.seq in shown:
            state.apply(event)
        else:
            state.pass_over(event)
    return state, lineage


def _cut(lineage: Sequence[e.Event], finding: Finding) -> tuple[int, tuple[LeafId, ...]]:
    """Where the branch is cut, and what must be run again in any case."""
    match finding.code:
        case "A2":
            return _before_the_question(lineage, finding)
        case "A3":
            return _seq(last_module_completed(lineage)), ()
        case "A4":
            leaf = LeafId(str(finding.evidence.get("leaf", "")))
            return max(_started(lineage, leaf) - 1, 0), (leaf,)
        case "D2":
            jump = finding.evidence.get("jump_event")
            return (jump - 1 if isinstance(jump, int) and jump > 0 else 0), ()
        case "NS":
            return 0, ()
        case _:
            return _seq(last_stable(lineage)), ()


def _before_the_question(lineage: Sequence[e.Event], finding: Finding) -> tuple[int, tuple[LeafId, ...]]:
    """At the start of the module that asked; code that asked by itself: just before the question."""
    asked = [event for event in pending_questions(lineage) if isinstance(event.body, e.InteractionRequested)]
    wanted = [event for event in asked if event.seq == finding.evidence.get("question_event")]
    question = next(iter(wanted or asked), None)
    if question is None:
        return _seq(last_stable(lineage)), ()
    module = asking_module(lineage, question)
    cutoff = question.seq - 1 if module is None else module.seq
    leaf = e.leaf_of(question.body)
    same = module is not None and leaf == e.leaf_of(module.body)
    return cutoff, () if leaf is None or same else (leaf,)


def _seq(event: e.Event | None) -> int:
    return 0 if event is None else event.seq


def _started(lineage: Sequence[e.Event], leaf: LeafId) -> int:
    """The first event of a leaf."""
    return next((event.seq for event in lineage if e.leaf_of(event.body) == leaf), 1)
