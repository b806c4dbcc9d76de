"""All public names of Buoy. `import buoy` loads this module when the first of them is used.

All of them at once: workflow code must not be the first to import a part, since that reads files.
"""

from buoy.engine.attempt import abandoned, idempotency_key, info, progress
from buoy.engine.calls import ask, continue_as_new, gather, now, random, sleep, start_child, uuid, wait_signal
from buoy.engine.client import Client
from buoy.engine.definitions import Step, Workflow, step, workflow
from buoy.engine.run_handle import Run
from buoy.engine.runner import RunnerOptions
from buoy.engine.spec_workflow import load_spec
from buoy.errors import (
    BadInput,
    BadSpec,
    Cancelled,
    Detached,
    Diverged,
    Fenced,
    NotAllowedHere,
    NotJson,
    Problem,
    RunCancelled,
    RunFailed,
    StepFailed,
    StoreUnusable,
    TooLarge,
    Unavailable,
    UnknownQuestion,
    UnknownRun,
    UnknownWorkflow,
    UserError,
    WrongState,
)
from buoy.wiring import open_app as open
from buoy.wiring import open_client as connect

__all__ = [
    "BadInput",
    "BadSpec",
    "Cancelled",
    "Client",
    "Detached",
    "Diverged",
    "Fenced",
    "NotAllowedHere",
    "NotJson",
    "Problem",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunnerOptions",
    "Step",
    "StepFailed",
    "StoreUnusable",
    "TooLarge",
    "Unavailable",
    "UnknownQuestion",
    "UnknownRun",
    "UnknownWorkflow",
    "UserError",
    "Workflow",
    "WrongState",
    "abandoned",
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
    "random",
    "sleep",
    "start_child",
    "step",
    "uuid",
    "wait_signal",
    "workflow",
]
