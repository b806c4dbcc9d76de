"""Compatibility: whether another definition fits what a run of a spec has done, found out without doing anything.

Invariant: the trial is the very replay that a runner would do, with bodies that cannot run; nothing is recorded, no
function is imported and no command is started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.lineage import visible
from buoy.core.log.state import fold
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.context import Request
from buoy.engine.code.replay import History
from buoy.engine.spec.decider import SpecDecider
from buoy.engine.spec.functions import Called, SpecFunctions
from buoy.engine.spec.runtime import SpecKit
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput, Diverged
from buoy.ports.host import Clock, Command, CommandEnd


async def check_fit(workflow: SpecWorkflow, run_id: RunId, log: Sequence[e.Event], clock: Clock) -> None:
    """Refuses a definition that cannot continue a run with this log, and names the first difference."""
    created = log[0].body
    if not isinstance(created, e.WorkflowCreated) or created.workflow != workflow.name:
        theirs = created.workflow if isinstance(created, e.WorkflowCreated) else "nothing"
        raise BadInput(
            f"run {run_id} is a run of {theirs}, and the file is {workflow.name}; the names must be the same"
        )
    trial = _Trial(run_id, log, clock)
    decider = SpecDecider(trial, workflow.plan(created.input), SpecKit(_NoCalls(), _NoShell()))
    try:
        await decider.replay(visible(log), trial.state.created_at)
        trial.history.finish()
        decider.check_pending()
    except Diverged as error:
        raise BadInput(f"the new spec does not fit what run {run_id} has done: {error}; nothing was changed") from error


class _Trial:
    """Stands in for the execution: it compares, and takes no notice of the rest."""

    delivery_paused = False

    def __init__(self, run_id: RunId, log: Sequence[e.Event], clock: Clock) -> None:
        self.run_id = run_id
        self.state = fold(run_id, log)
        self.history = History(visible(log))
        self.replaying = True
        self.clock = clock

    @property
    def host(self) -> _Trial:
        return self

    @property
    def leaves(self) -> _Trial:
        return self

    def open_leaf(self, request: Request) -> None:
        if not self.history.match(request):
            self.state.open[request.leaf] = Leaf(id=request.leaf, kind=request.kind, name="", since=0.0)

    def remember(self, request: Request) -> None: ...

    def cancel_leaf(self, leaf: LeafId) -> None: ...

    def code_returned(self, value: Any) -> None: ...

    def code_raised(self, error: BaseException) -> None: ...

    def record(self, body: e.Body) -> None: ...

    def bind(self) -> None: ...

    def turn(self, work: Callable[..., None], *args: Any) -> None:
        work(*args)

    def diverged(self, error: Exception) -> NoReturn:
        raise error


class _NoCalls(SpecFunctions):
    def find(self, target: str) -> Called:
        return Called(_nothing, Arguments(_nothing, target), is_async=False)


class _NoShell:
    slots = 1

    async def run(self, command: Command) -> CommandEnd:
        raise NotImplementedError("a trial runs nothing")

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        raise NotImplementedError("a trial looks at no file")


def _nothing() -> None: ...
