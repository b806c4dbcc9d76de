"""Spec return: what going back to a step means for a run of a spec, whose steps say what they need.

Invariants: dropped are the leaves that are run again, everything in steps that need theirs, and what failed or was
given up; every other leaf stays as it is, also one that is under way or waits for an answer. A step whose modules are
run again keeps the modules before them.
Absent on purpose: the order of events. What a step depends on is in the spec, not in when it ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf, LeafPhase
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.lineage import branches
from buoy.core.log.state import State, fold
from buoy.core.remedy.rewind import RewindPlan, find_leaf
from buoy.errors import WrongState

# All steps that need one of these, directly or not.
Descendants: TypeAlias = Callable[[set[str]], set[str]]


def plan_spec_return(
    run_id: RunId,
    events: Sequence[e.Event],
    descendants: Descendants,
    to: str | None = None,
    *,
    keep_answers: bool = False,
) -> RewindPlan:
    """The branch on which the run continues from before that step (default: all that failed)."""
    state = fold(run_id, events)
    target = find_leaf(state, to) if to is not None else _failed_last(state)
    lost = [leaf for leaf in state.leaves.values() if leaf.phase in _lost(state) and leaf.kind != "group"]
    again = _with_what_follows(state, lost if target is None else [target, *lost])
    below = descendants({step_of(leaf) for leaf in again})
    dropped = again | {leaf for leaf in state.leaves if step_of(leaf) in below}
    # A group that ended without a result, whatever the reason, must end again.
    dropped |= {leaf.id for leaf in state.leaves.values() if leaf.phase in _lost(state)}
    if keep_answers:
        dropped -= {leaf.id for leaf in state.leaves.values() if _answered(leaf) and leaf is not target}
    first = min((state.leaves[leaf].started_seq for leaf in dropped), default=state.head_seq)
    return RewindPlan(
        to=LeafId("the end") if target is None else target.id,
        branch=BranchId(max([0, *branches(events)]) + 1),
        parent=state.branch,
        # All that the branch can see, except for the end: what is hidden is named.
        cutoff_seq=state.ending_seq - 1 if state.ending_seq else state.head_seq,
        kept=(),
        dropped=tuple(leaf for leaf in state.leaves if leaf in dropped),
        spared=tuple(
            leaf.id
            for leaf in state.leaves.values()
            if leaf.id not in dropped and leaf.phase == "completed" and leaf.started_seq > first
        ),
        definition=state.version,
    )


def _failed_last(state: State) -> Leaf | None:
    """What failed last; None if all steps completed, and only the run's result could not be made."""
    failed = [leaf for leaf in state.leaves.values() if leaf.phase in _lost(state) - {"cancelled"}]
    if not failed and state.held:
        raise WrongState(
            f"failed jobs of run {state.run_id} wait, and it has not ended; let them run again by "
            f"`buoy recover {state.run_id}` or `buoy reset {state.run_id} JOB`"
        )
    if not failed and state.status is not Status.FAILED:
        raise WrongState(
            f"no step of run {state.run_id} failed; name the step to continue from, for example --from STEP"
        )
    # A group failed because of one of its leaves: that one is what is run again.
    failed = [leaf for leaf in failed if leaf.kind != "group"] or failed
    return max(failed, key=lambda leaf: leaf.ended_seq, default=None)


def _lost(state: State) -> set[LeafPhase]:
    """The phases of leaves that have to run again. A job that failed waits for a reset until its run has ended."""
    return {"failed", "cancelled", "held"} if state.status in TERMINAL else {"failed", "cancelled"}


def step_of(leaf: LeafId) -> str:
    """The step of a spec that a leaf belongs to."""
    return leaf.rpartition("#")[0].partition("/")[0]


def _with_what_follows(state: State, leaves: Sequence[Leaf]) -> set[LeafId]:
    """These, the rest of their steps from there on, and the steps themselves."""
    found: set[LeafId] = set()
    begins: dict[str, int] = {}
    for leaf in leaves:
        step = step_of(leaf.id)
        # The step itself may have started again after kept modules: all of it counts.
        begin = 0 if leaf.id.partition("#")[0] == step else _module_of(state, leaf).started_seq
        begins[step] = min(begins.get(step, begin), begin)
    for leaf in state.leaves.values():
        step = step_of(leaf.id)
        if step in begins and (leaf.started_seq >= begins[step] or leaf.id.partition("#")[0] == step):
            found.add(leaf.id)
    return found


def _module_of(state: State, leaf: Leaf) -> Leaf:
    """The module that a question belongs to; any other leaf itself."""
    if leaf.kind != "ask":
        return leaf
    owner = state.leaves.get(LeafId(leaf.id.rpartition("/")[0] + "#1"))
    return leaf if owner is None else owner


def _answered(leaf: Leaf) -> bool:
    return leaf.kind == "ask" and leaf.phase == "completed"
