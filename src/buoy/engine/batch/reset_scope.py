"""The scope of a reset: which jobs of a batch run a request is about, which run again by it, and which hold the run up.

Invariant: a job that depends on a failed one was cancelled with it, and runs again with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buoy.core.batch.graph import cancelled_with
from buoy.core.ids import LeafId, leaf_id
from buoy.core.log.state import State
from buoy.core.log.wording import counted
from buoy.core.spec.plan import SpecPlan
from buoy.engine.batch.protocol import step_of
from buoy.errors import BadInput

_NAMES_MAX = 5


def job_leaf(plan: SpecPlan, node: int) -> LeafId:
    """The leaf of a job."""
    return leaf_id("", plan.steps[node].id, 1)


def nodes_of(plan: SpecPlan, leaves: Iterable[LeafId]) -> list[int]:
    """The jobs that a request names. Refuses those that the spec does not have."""
    unknown = [leaf for leaf in leaves if step_of(leaf) not in plan.index]
    if unknown:
        raise BadInput(f"unknown job {step_of(unknown[0])!r}; `buoy jobs` lists the jobs of a run")
    return [plan.index[step_of(leaf)] for leaf in leaves]


def run_again(plan: SpecPlan, state: State, nodes: Sequence[int]) -> set[LeafId]:
    """Those of these jobs that failed or were stopped, and those that were cancelled with them."""
    held = {leaf.id for leaf in state.open.values() if leaf.phase == "held"}
    named = {job_leaf(plan, node) for node in nodes}
    below = {job_leaf(plan, each) for node in nodes for each in cancelled_with(plan, node)}
    return {leaf for leaf in named if leaf in held or leaf in state.stopped} | {
        leaf for leaf in below if state.stopped.get(leaf) == "dependency"
    }


def why_it_rests(state: State) -> str | None:
    """What keeps all other jobs waiting: failed jobs, else cancelled ones."""
    held = [leaf.name for leaf in state.open.values() if leaf.phase == "held"]
    if not held:
        return "cancelled jobs keep others waiting" if state.stopped else None
    names = ", ".join(held[:_NAMES_MAX]) + (" and more" if len(held) > _NAMES_MAX else "")
    return f"{counted(len(held), 'job')} failed ({names})"
