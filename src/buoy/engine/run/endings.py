"""Endings: which event ends a run whose code has returned or raised."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from buoy.core.ids import LeafId, RunId, successor_id
from buoy.core.limits import CAUSES_MAX
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.state import State
from buoy.core.log.storable import storable_text
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.run.step_attempt import error_info
from buoy.errors import (
    BadInput,
    Cancelled,
    ContinueAsNew,
    NotJson,
    RunCancelled,
    RunFailed,
    StepFailed,
    TooLarge,
    UserError,
)


def returning(workflow: Workflow[..., Any], value: Any) -> e.Ending:
    """The code gave a result; one that cannot be stored, or read back as its annotation says, is a failure."""
    what = f"the result of workflow {workflow.name}"
    try:
        stored = codec.encode(value, what)
        codec.same_after_storage(value, workflow.arguments.returns, stored, what)
    except (NotJson, TooLarge, BadInput) as error:
        return e.WorkflowFailed(error=error_info(error, retryable=False))
    return e.WorkflowCompleted(result=stored)


def continuing(workflow: Workflow[..., Any], run_id: RunId, new: ContinueAsNew) -> e.Ending:
    """The code hands over to a successor; arguments that do not fit are a failure."""
    try:
        stored = workflow.arguments.encode(new.next_args, new.next_kwargs)
        workflow.arguments.decode(stored)
    except UserError as error:
        return e.WorkflowFailed(error=error_info(error, retryable=False))
    return e.WorkflowCompleted(continued_as=successor_id(run_id), next_input=stored)


def ending_for(error: BaseException, state: State) -> e.Ending:
    """A cancellation that was asked for, by the code or from outside, cancels; all else fails."""
    if isinstance(error, BaseExceptionGroup) and _only_cancelled(error):
        return e.WorkflowCancelled(reason=storable_text(_first_reason(error) or "") or _reason(state))
    if isinstance(error, Cancelled):
        return e.WorkflowCancelled(reason=storable_text(str(error)) or _reason(state))
    if isinstance(error, asyncio.CancelledError) and state.cancel is not None:
        return e.WorkflowCancelled(reason=_reason(state))
    leaf, child = _cause(error)
    return e.WorkflowFailed(error=_advised(error), cause_leaf=leaf, cause_child=child)


def _cause(error: BaseException) -> tuple[LeafId | None, RunId | None]:
    """The step, or the child, whose failure ended the code.

    Follows Python's own chain: the error itself, the members of a group, its cause, its context. The first one found
    counts.
    """
    left, seen = [error], set[int]()
    while left and len(seen) < CAUSES_MAX:
        each = left.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, StepFailed) and each.step:
            return LeafId(each.step), None
        if isinstance(each, RunFailed | RunCancelled) and each.run_id:
            return None, RunId(each.run_id)
        if isinstance(each, BaseExceptionGroup):
            left.extend(each.exceptions)
        before = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if before is not None:
            left.append(before)
    return None, None


def _advised(error: BaseException) -> e.ErrorInfo:
    """The error; of asyncio's own about a second loop with what to do instead."""
    info = error_info(error, retryable=False)
    if isinstance(error, RuntimeError) and _raised_in(error) == asyncio.run.__module__:
        advice = "workflow code has a loop of its own: await the coroutine, or put what does I/O in a step"
        return msgspec.structs.replace(info, message=f"{info.message}; {advice}")
    return info


def _raised_in(error: BaseException) -> str | None:
    """The module whose code raised it."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return None if place is None else place.tb_frame.f_globals.get("__name__")


def _only_cancelled(group: BaseExceptionGroup[BaseException]) -> bool:
    """A task group wraps what its tasks raised."""
    return group.split((Cancelled, asyncio.CancelledError))[1] is None


def _first_reason(group: BaseExceptionGroup[BaseException]) -> str | None:
    for error in group.exceptions:
        found = _first_reason(error) if isinstance(error, BaseExceptionGroup) else str(error)
        if found:
            return found
    return None


def _reason(state: State) -> str | None:
    return None if state.cancel is None else state.cancel.reason
