"""Endings: which event ends a run whose code raised an exception."""

from __future__ import annotations

import asyncio

from buoy.core import events as e
from buoy.core.state import State
from buoy.engine.bodies import error_info
from buoy.errors import Cancelled


def ending_for(error: BaseException, state: State) -> e.Ending:
    """A cancellation that was asked for, by the code or from outside, cancels; all else fails."""
    if isinstance(error, BaseExceptionGroup) and _only_cancelled(error):
        return e.WorkflowCancelled(reason=_first_reason(error) or _reason(state))
    if isinstance(error, Cancelled):
        return e.WorkflowCancelled(reason=str(error) or _reason(state))
    if isinstance(error, asyncio.CancelledError) and state.cancel is not None:
        return e.WorkflowCancelled(reason=_reason(state))
    return e.WorkflowFailed(error=error_info(error, retryable=False))


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
