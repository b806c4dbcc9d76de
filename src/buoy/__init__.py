"""Buoy: durable workflows for Python that come back.

`step` and `workflow` make them, `open` drives them in this process, `connect` only sends them requests.

The engine is loaded when the first public name is used: a command that only lists runs does not need it.
"""

# ruff: noqa: F403, F405 - a test compares the two lists of names
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from buoy.public import *

__all__ = [
    "BadInput",
    "BadSpec",
    "Cancelled",
    "Client",
    "Detached",
    "Diverged",
    "Fenced",
    "Found",
    "NotAllowedHere",
    "NotJson",
    "NotWritten",
    "Problem",
    "Reconciled",
    "Recovery",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunnerOptions",
    "Scan",
    "Step",
    "StepFailed",
    "StoreUnusable",
    "Swept",
    "TaskView",
    "TooLarge",
    "Unavailable",
    "Unclear",
    "UnknownQuestion",
    "UnknownRun",
    "UnknownWorkflow",
    "UserError",
    "Workflow",
    "WrongState",
    "abandoned",
    "asgi",
    "ask",
    "connect",
    "continue_as_new",
    "gather",
    "idempotency_key",
    "info",
    "load_spec",
    "now",
    "open",
    "progress",
    "publish",
    "random",
    "reconcile",
    "recover",
    "scan",
    "sleep",
    "start_child",
    "step",
    "sweep",
    "uuid",
    "wait_signal",
    "workflow",
]

if not TYPE_CHECKING:  # type checkers shall still refuse names that do not exist

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'buoy' has no attribute {name!r}")
        from buoy import public

        globals().update({each: getattr(public, each) for each in __all__})
        return globals()[name]

    def __dir__() -> list[str]:
        return [*__all__, *(each for each in globals() if each.startswith("__"))]
