"""All public names of Buoy. `import buoy` loads this module when the first of them is used.

All of them at once: workflow code must not be the first to import a part, since that reads files.
"""

from buoy.engine.authoring.attempt import abandoned, idempotency_key, info, progress, publish
from buoy.engine.authoring.calls import ask, continue_as_new, gather, now, random, sleep, start_child, uuid, wait_signal
from buoy.engine.authoring.definitions import Step, Workflow, step, workflow
from buoy.engine.client.client import Client
from buoy.engine.client.run import Run
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.spec.workflow import load_spec
from buoy.errors import (
    BadInput,
    BadSpec,
    Cancelled,
    Detached,
    Diverged,
    Fenced,
    NotAllowedHere,
    NotJson,
    NotWritten,
    Problem,
    RunCancelled,
    RunFailed,
    StepFailed,
    StoreUnusable,
    TooLarge,
    Unavailable,
    Unclear,
    UnknownQuestion,
    UnknownRun,
    UnknownWorkflow,
    UserError,
    WrongState,
)
from buoy.recovery.recover import Recovery
from buoy.recovery.sweep.found import Found
from buoy.recovery.sweep.reconcile import Reconciled
from buoy.recovery.sweep.scan import Scan
from buoy.recovery.sweep.tally import Swept
from buoy.recovery.sweep.task_check import TaskView
from buoy.web.asgi import asgi
from buoy.wiring.app import open_app as open
from buoy.wiring.app import open_client as connect
from buoy.wiring.recovery import reconcile, recover, scan, sweep

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
