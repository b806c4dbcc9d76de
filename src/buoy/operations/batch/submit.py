"""Submit: stores a batch run of a spec, whose commands runners take as jobs.

Invariant: whatever is wrong with the spec is refused before anything is stored.
"""

from __future__ import annotations

import re

import msgspec

from buoy.core.batch.graph import SchedulerGroup, WorkflowGraph
from buoy.core.ids import RunId, check_run_id
from buoy.core.limits import BATCH_ID_CHARS_MAX
from buoy.core.spec.plan import SpecPlan
from buoy.engine.client.client import Client
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput
from buoy.operations.targets.spec_files import Target


class Submitted(msgspec.Struct, frozen=True):
    """A stored batch run. `created`: this call made it."""

    run_id: RunId
    workflow: str
    created: bool
    jobs: int
    groups: tuple[SchedulerGroup, ...]


async def submit(client: Client, target: Target, run_id: str | None = None) -> Submitted:
    """Stores a batch run. The same id with the same input is one run."""
    workflow, plan = _spec(target), batch_plan(target)
    checked = _run_id(client, workflow.spec.name) if run_id is None else _checked(run_id)
    there = None if run_id is None else await client.store.run(checked)
    await client.start_stored(checked, workflow, target.input, placement="batch")
    groups = WorkflowGraph.from_plan(plan).scheduler_groups()
    return Submitted(checked, workflow.name, there is None, len(plan.steps), tuple(groups))


def batch_plan(target: Target) -> SpecPlan:
    """The jobs of a spec; a refusal if it cannot be a batch run."""
    plan = _spec(target).plan(target.input)
    check_jobs(plan)
    return plan


def _spec(target: Target) -> SpecWorkflow:
    if not isinstance(target.workflow, SpecWorkflow):
        name = target.workflow.name
        raise BadInput(f"{name} is no spec; `buoy submit` takes a YAML or JSON file, use `buoy start`")
    return target.workflow


def check_jobs(plan: SpecPlan) -> None:
    """Refuses a spec with a command inside of a step's modules: a job is a whole step."""
    for step in plan.spec.steps:
        inner = next((module for module in step.modules if module.run is not None), None)
        if inner is not None:
            raise BadInput(
                f"step {step.id!r} has a command in its module {inner.id!r}; make it a step of its own for a batch run"
            )


def _checked(text: str) -> RunId:
    found = check_run_id(text)
    if len(found) > BATCH_ID_CHARS_MAX:
        raise BadInput(
            f"run id {text[:60]!r} is too long: {len(text)} characters; "
            f"choose one of at most {BATCH_ID_CHARS_MAX} for a batch run"
        )
    return found


def _run_id(client: Client, name: str) -> RunId:
    prefix = re.sub(r"[^a-z0-9._-]", "-", name.lower()[:40]).lstrip("._-")
    return check_run_id(client.ids.new(f"{prefix}-" if prefix else ""))
