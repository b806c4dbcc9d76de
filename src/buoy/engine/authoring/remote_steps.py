"""Remote steps: a step with a queue runs as a small run of its own, on a runner that serves that queue.

Why a child run: it already has everything that a step elsewhere needs. Its id is made of the caller's leaf, so a replay
finds it. Its log fences a runner that was declared dead too early. Its attempt survives a crash, and its result comes
back as a message.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import wraps
from typing import Any

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.engine.authoring.context import Request, StepOutcome, WorkflowContext
from buoy.engine.authoring.definitions import Step, Workflow


def as_workflow(step: Step[..., Any]) -> Workflow[..., Any]:
    """The workflow that runs such a step: known to every runner that has the step's code."""
    assert step.queue is not None
    here: Step[..., Any] = Step(
        step.fn, name=step.name, retry=step.retry, timeout_s=step.timeout_s, compensate=None, queue=None
    )

    @wraps(step.fn)
    async def run_step(*args: Any, **kwargs: Any) -> Any:
        return await here.call(*args, **kwargs)

    return Workflow(run_step, name=f"step:{step.name}", recovery="resume", queue=step.queue)


def remote_request(
    context: WorkflowContext, step: Step[..., Any], leaf: LeafId, args: Any, left_out: Collection[str]
) -> Request:
    """What a workflow asks for when it calls such a step."""
    workflow = step.remote
    started = e.ChildStarted(
        leaf=leaf,
        child=context.child_id(leaf),
        workflow=workflow.name,
        input=args,
        version=workflow.version,
        policy=workflow.recovery,
        queue=workflow.queue,
    )
    return Request(leaf, "child", started, None, StepOutcome(step.arguments.returns), workflow, left_out)
