"""Endings: which event ends a run whose code has returned or raised."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from buoy.core import codec
from buoy.core import events as e
from buoy.core.ids import RunId, successor_id
from buoy.core.state import State
from buoy.core.storable import storable_text
from buoy.engine.bodies import error_info
from buoy.engine.definitions import Workflow
from buoy.errors import BadInput, Cancelled, ContinueAsNew, NotJson, TooLarge, UserError


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
    return e.WorkflowFailed(error=_advised(error))


def _advised(error: BaseException) -> e.ErrorInfo:
    """The error; of asyncio's own about a second loop with what to do instead."""
    info = error_info(error, retryable=False)
    if isinstance(error, RuntimeError) and info.message.startswith("asyncio.run() cannot be called"):
        advice = "workflow code has a loop of its own: await the coroutine, or put what does I/O in a step"
        return msgspec.structs.replace(info, message=f"{info.message}; {advice}")
    return info


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
