"""Calls: the durable calls of workflow code, sync and async. Those of steps are in `step_calls`."""

from __future__ import annotations

import asyncio
import random as random_module
import uuid as uuid_module
from collections.abc import Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, cast

from buoy.core.durations import Duration, seconds
from buoy.core.ids import check_name
from buoy.core.log import events as e
from buoy.core.log.questions import Kind, make_question
from buoy.engine.authoring.context import CURRENT, Request, StepContext, WorkflowContext, workflow_context
from buoy.engine.authoring.step_calls import DurableCall, StepCall, waiting
from buoy.errors import BadInput, ContinueAsNew

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Workflow

P = ParamSpec("P")


def gather(*calls: Any) -> Any:
    """The outcomes of several calls that run at the same time, in the order of the calls.

    In an async workflow it is `asyncio.gather`. In a sync workflow it takes `step.call(...)` and gives a list.
    """
    context = CURRENT.get()
    if context is None or isinstance(context, StepContext) or context.is_async:
        return asyncio.gather(*calls)
    if not all(isinstance(call, StepCall) for call in calls):
        raise BadInput("buoy.gather in a sync workflow takes calls: buoy.gather(fetch.call(1), fetch.call(2))")
    return context.ask_for_all([call.take() for call in calls])


def ask(
    title: str,
    *,
    kind: Kind | None = None,
    options: list[str] | tuple[str, ...] = (),
    schema: dict[str, object] | None = None,
    detail: str | None = None,
) -> Any:
    """Asks a person and waits for the answer, minutes or months. Await it in an async workflow.

    `kind`: confirm (a bool), choose (one of `options`), choose_many (a list of them), text, form (a JSON `schema`).
    """
    context = workflow_context("buoy.ask")
    question = make_question(title, kind, options, schema, detail)
    leaf = context.scope().next_leaf("ask")
    started = e.InteractionRequested(leaf=leaf, question_id=context.key(leaf), question=question)
    return _begin(context, Request(leaf, "ask", started))


def wait_signal(name: str, *, timeout: Duration | None = None) -> Any:
    """Waits for a signal of this name and gives its payload; `TimeoutError` after `timeout`. Await it in async code."""
    context = workflow_context("buoy.wait_signal")
    check_name(name, "signal")
    leaf = context.scope().next_leaf(f"signal:{name}")
    due_at = None if timeout is None else context.now() + seconds(timeout, "timeout")
    return _begin(context, Request(leaf, "signal", e.SignalWaited(leaf=leaf, name=name, due_at=due_at)))


def sleep(duration: Duration) -> Any:
    """Sleeps durably: a crash does not restart the wait. Await it in async code."""
    context = workflow_context("buoy.sleep")
    leaf = context.scope().next_leaf("timer")
    due_at = context.now() + seconds(duration, "sleep")
    return _begin(context, Request(leaf, "timer", e.TimerStarted(leaf=leaf, due_at=due_at)))


def child(workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, detach: bool) -> Any:
    """A run of another workflow, started from here. Its id is made of this call, so that a replay finds it again."""
    context = workflow_context("a child run")
    leaf = context.scope().next_leaf(workflow.name)
    stored, left_out = workflow.arguments.encode_call(args, kwargs)
    started = e.ChildStarted(
        leaf=leaf,
        child=context.child_id(leaf),
        workflow=workflow.name,
        input=stored,
        detach=detach,
        version=workflow.version,
        policy=workflow.recovery,
        queue=workflow.queue,
    )
    return _begin(context, Request(leaf, "child", started, None, workflow.arguments.returns, workflow, left_out))


def check_workflow(workflow: object, what: str) -> None:
    """Refuses what is no workflow, with what to write instead."""
    from buoy.engine.authoring.definitions import Step, Workflow  # it needs this module

    if isinstance(workflow, Step):
        raise BadInput(f"{what} takes a workflow: {workflow!r}; call the step from a workflow")
    if not isinstance(workflow, Workflow):
        raise BadInput(f"{what} takes a workflow: {workflow!r}; pass the function that has @buoy.workflow")


def start_child(workflow: Workflow[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Starts a run of its own and gives its id, without waiting for it; cancelling this run does not cancel it."""
    check_workflow(workflow, "buoy.start_child")
    return child(workflow, args, kwargs, detach=True)


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """Ends this run and continues it with a fresh log and these arguments: for loops that never end."""
    workflow_context("buoy.continue_as_new")
    raise ContinueAsNew(args, kwargs)


def _begin(context: WorkflowContext, request: Request) -> Any:
    return _Wait(context, request) if context.is_async else context.ask_for(request)


class _Wait(DurableCall[Any]):
    """An ask, a signal, a sleep or a child before it is awaited."""

    __slots__ = ("_leaf", "_request")

    def __init__(self, context: WorkflowContext, request: Request) -> None:
        super().__init__()
        self._context = context
        self._leaf = request.leaf
        self._request = request

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._iterator is not None:
            raise RuntimeError(f"{self._leaf} was awaited twice; make the call again")
        self._iterator = waiting(self._context, self._request)
        return cast("Generator[Any, Any, Any]", self._iterator)

    def in_words(self) -> str:
        return str(self._leaf)


def now() -> datetime:
    """When the code saw what it saw last (an outcome, or the run being taken or resumed): the same at every replay."""
    return datetime.fromtimestamp(workflow_context("buoy.now").now(), UTC)


def uuid() -> uuid_module.UUID:
    """A UUID derived from the run and the place of the call: the same at every replay."""
    return uuid_module.uuid5(uuid_module.NAMESPACE_OID, _derived("uuid"))


def random() -> random_module.Random:
    """A random generator seeded by the run and the place of the call: the same at every replay."""
    return random_module.Random(_derived("random"))


def _derived(name: str) -> str:
    context = workflow_context(f"buoy.{name}")
    return context.key(context.scope().next_leaf(name))
