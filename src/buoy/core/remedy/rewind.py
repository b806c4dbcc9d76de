"""Rewind: what going back to a step means: which events the new branch keeps, and what runs again.

Invariants: nothing is removed. A leaf is kept only if it completed, and began before the repeated leaf had its outcome:
only then its result cannot depend on that outcome. `dropped` names every leaf that will run again, so its epoch rises:
the user asked for it, so a payment gets a new key.
Absent on purpose: the store, and who may ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.ids import BranchId, LeafId, RunId, leaf_scope
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.lifecycle import Status
from buoy.core.log.lineage import branches
from buoy.core.log.state import State, fold
from buoy.core.log.transitions import compensation_leaf
from buoy.core.spec.model import is_spec
from buoy.errors import BadInput, WrongState


class RewindPlan(msgspec.Struct, frozen=True):
    """A branch that is not made yet. `again`: what will be executed or asked again; `kept`: what will not."""

    to: LeafId
    branch: BranchId
    parent: BranchId
    cutoff_seq: int
    kept: tuple[LeafId, ...]
    dropped: tuple[LeafId, ...]
    # Among what runs again: steps that completed, whose compensation failed. Their first effect still stands.
    never_undone: tuple[LeafId, ...] = ()
    # What had started and has no outcome: executed again, under the same key.
    under_way: tuple[LeafId, ...] = ()
    # Of these, the steps that have failed before: the branch keeps count of their attempts.
    tried: tuple[LeafId, ...] = ()
    # Of a spec: completed leaves that began after the first that runs again, and do not depend on it.
    spared: tuple[LeafId, ...] = ()
    # Of a spec: the definition that the run will be driven by.
    definition: str = ""

    @property
    def again(self) -> tuple[LeafId, ...]:
        return self.dropped

    def events(self, cause: str, by: str | None = None) -> tuple[e.JumpRequested, e.BranchCreated]:
        """The two events that make it."""
        created = e.BranchCreated(
            branch=self.branch,
            parent=self.parent,
            cutoff_seq=self.cutoff_seq,
            kept=(*self.kept, *self.tried),
            dropped=self.dropped,
            cause=cause,
        )
        return e.JumpRequested(to=self.to, new_branch=self.branch, by=by), created


def plan_return(
    run_id: RunId, events: Sequence[e.Event], to: str | None = None, *, keep_answers: bool = False
) -> RewindPlan:
    """The branch on which the run continues from before that step (default: the last one that failed)."""
    state = fold(run_id, events)
    target = find_leaf(state, to) if to is not None else _failed_last(state)
    leaves = [leaf for leaf in state.leaves.values() if leaf.kind != "compensation"]
    # What was undone must be done again too, so the run goes back to before the first of these.
    undone = {leaf.id for leaf in leaves if compensation_leaf(leaf.id) in state.leaves}
    again = set(undone)
    if target is not None:
        again |= {target.id} | {leaf.id for leaf in leaves if _holds(target, leaf)}
    # Without a step to run again only the end is hidden: the code itself failed, and continues from where it was.
    cutoff = min((leaf.started_seq for leaf in leaves if leaf.id in again), default=state.ending_seq) - 1
    cancelled = _cancel_met(state, events)
    _check_before_cancel(state, cancelled, target, cutoff)
    later = [leaf for leaf in leaves if max(leaf.started_seq, leaf.ended_seq) > cutoff]
    under_way = [leaf for leaf in leaves if leaf.phase in ("open", "retrying") and leaf.started_seq <= cutoff]
    if cancelled is not None and state.ending_seq:
        # The branch leaves the cancel behind with the end. So it has none of the clean-up that the cancel began.
        again |= {leaf.id for leaf in later if leaf.started_seq > cancelled}
    dropped = _dependent(later, again, keep_answers=keep_answers)
    return RewindPlan(
        to=LeafId("the code") if target is None else target.id,
        branch=BranchId(max([0, *branches(events)]) + 1),
        parent=state.branch,
        cutoff_seq=cutoff,
        kept=tuple(leaf.id for leaf in later if leaf.id not in dropped),
        dropped=tuple(leaf.id for leaf in later if leaf.id in dropped),
        never_undone=tuple(
            leaf.id
            for leaf in later
            if leaf.id in undone and state.leaves[compensation_leaf(leaf.id)].phase != "completed"
        ),
        under_way=tuple(leaf.id for leaf in under_way),
        tried=tuple(leaf.id for leaf in under_way if leaf.attempt > 1 or leaf.phase == "retrying"),
    )


def _cancel_met(state: State, events: Sequence[e.Event]) -> int | None:
    """The event of the first cancel request that the run has met since it last continued after an end."""
    if state.cancel is None:
        return None
    ends = [event.seq for event in events if isinstance(event.body, e.ENDINGS) and event.seq != state.ending_seq]
    since = max(ends, default=0)
    return min(event.seq for event in events if isinstance(event.body, e.CancelRequested) and event.seq > since)


def _check_before_cancel(state: State, asked: int | None, target: Leaf | None, cutoff: int) -> None:
    """What came after a cancel request was clean-up: going on there would need the request again."""
    if asked is not None and cutoff >= asked:
        place = "its code" if target is None else target.id
        raise BadInput(
            f"{place} belongs to what run {state.run_id} did after it was cancelled (event {asked}); "
            "name a step that began before, for example --from STEP"
        )


def _dependent(later: list[Leaf], again: set[LeafId], *, keep_answers: bool) -> set[LeafId]:
    """What must run again with them: all that did not complete, or began after one of them had its outcome.

    Dropping one more may make others depend on it; so it is looked at until nothing changes.
    """
    dropped = set(again)
    while True:
        # One that was given up counts, too: what came after it came because of that.
        outcomes = [leaf.ended_seq for leaf in later if leaf.id in dropped and leaf.ended_seq]
        horizon = min(outcomes, default=None)
        more = {
            leaf.id
            for leaf in later
            if leaf.id not in dropped
            and (leaf.phase != "completed" or (horizon is not None and leaf.started_seq > horizon))
            and not (keep_answers and leaf.kind == "ask" and leaf.phase == "completed")
        }
        scopes = {leaf_scope(each) for each in dropped | more}
        groups = [leaf for leaf in later if leaf.kind == "group" and leaf.id not in dropped]
        more |= {leaf.id for leaf in groups if leaf.id.rpartition("#")[0] in scopes}
        if not more:
            return dropped
        dropped |= more


def _holds(group: Leaf, leaf: Leaf) -> bool:
    """Whether a step of a spec consists of that leaf, among others."""
    return group.kind == "group" and leaf.id.startswith(group.id.rpartition("#")[0] + "/")


def _failed_last(state: State) -> Leaf | None:
    """The step whose failure ended the run; None if its code failed by itself."""
    # A group failed only because of one of its leaves: that one is what is run again.
    apart = ("compensation", "group")
    failed = [leaf for leaf in state.leaves.values() if leaf.phase == "failed" and leaf.kind not in apart]
    if state.status is Status.FAILED and not _is_spec(state):
        # A step may have failed and been caught, before the code failed by itself.
        return next((leaf for leaf in failed if _is_cause(leaf, state)), None)
    if not failed:
        raise WrongState(
            f"no step of run {state.run_id} failed; name the step to continue from, for example --from STEP"
        )
    return max(failed, key=lambda leaf: leaf.ended_seq)


def _is_cause(leaf: Leaf, state: State) -> bool:
    """Whether that leaf's failure ended the run. For a child the log may have only the child's own id."""
    return leaf.id == state.cause_leaf or (leaf.child is not None and leaf.child.child == state.cause_child)


def _is_spec(state: State) -> bool:
    """A spec has no code of its own that could fail."""
    return state.created is not None and is_spec(state.created.workflow)


def find_leaf(state: State, to: str) -> Leaf:
    """By leaf id, or by a step's name: then its last occurrence."""
    exact = state.leaves.get(LeafId(to))
    if exact is not None and exact.kind != "compensation":
        return exact
    named = [leaf for leaf in state.leaves.values() if leaf.name == to and leaf.kind != "compensation"]
    if not named:
        known = ", ".join(leaf.id for leaf in list(state.leaves.values())[:20] if leaf.kind != "compensation") or "none"
        raise BadInput(f"run {state.run_id} has no step {to!r} that ran on its current branch; it has: {known}")
    return max(named, key=lambda leaf: leaf.started_seq)
