"""Containment: keeps an unexpected error inside the run that met it.

Invariant: the run is paused with the reason and the place. If not even that can be recorded, the runner gives the run
back and reports the error. No other run is affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buoy.core.log.storable import storable_text

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution


def contain(execution: Execution, error: Exception) -> None:
    """Pauses the run with the error as its reason."""
    try:
        execution.held(error)
        execution.flush()
        execution.report()
    except Exception as worse:  # noqa: BLE001 - reported, and the run is given back
        execution.host.broken(execution, worse)


def reason_of(error: BaseException) -> str:
    """What is shown of an unexpected error: its class, its text and the place where it was raised."""
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - an error whose text cannot be made is described by its class
        text = f"(its text cannot be made: {type(broken).__name__})"
    return storable_text(f"internal error: {type(error).__name__}: {text} [{_place(error)}]")


def _place(error: BaseException) -> str:
    """The module, line and function of the innermost frame."""
    trace = error.__traceback__
    if trace is None:
        return "no traceback"
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    return f"{frame.f_globals.get('__name__', '?')}:{trace.tb_lineno} in {frame.f_code.co_name}"
