"""Calls: the durable calls of workflow code, sync and async.

Invariant: a call takes its identity when it is made and stores its arguments then; what happens later to the caller's
objects changes nothing.
"""

from __future__ import annotations

import asyncio
import random as random_module
import uuid as uuid_module
import warnings
from collections.abc import Coroutine, Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast

from buoy.core.durations import Duration, seconds
from buoy.core.ids import check_name
from buoy.core.log import events as e
from buoy.core.log.questions import Kind, make_question
from buoy.engine.authoring.context import (
    CURRENT,
    UNKNOWN,
    Request,
    StepContext,
    WorkflowContext,
    plain_context,
    workflow_context,
)
from buoy.errors import BadInput, ContinueAsNew, NotAllowedHere

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Step, Workflow

P = ParamSpec("P")
T = TypeVar("T")


class _Call(Coroutine[Any, Any, T], Generic[T]):
    """A durable call before it is awaited: a coroutine, so that any asyncio form takes it."""

    __slots__ = ("_iterator",)

    def __init__(self) -> None:
        self._iterator: Any = None

    def send(self, value: Any) -> Any:
        return (self._iterator or self.__await__()).send(value)

    def throw(self, *args: Any) -> Any:
        if self._iterator is None:
            # Cancelled before it began: it never asks for its leaf.
            self._iterator = iter(())
            raise args[0] if isinstance(args[0], BaseException) else args[0](*args[1:2])
        return self._iterator.throw(*args)

    def close(self) -> None:
        if self._iterator is not None and hasattr(self._iterator, "close"):
            self._iterator.close()


class StepCall(_Call[T]):
    """A call of a step: a coroutine that any asyncio form takes. Outside of a workflow it is the plain call.

    What it asks for is made when it is awaited and its outcome is not known. A replay knows most outcomes: without
    events, keys and requests for them it takes 8 % less processor time, its code 14 % less.
    """

    __slots__ = ("_context", "_given", "_leaf", "_left_out", "_own", "_step", "_stored")

    def __init__(self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._step = step
        self._iterator: Any = None
        self._context: WorkflowContext | None = None
        context = CURRENT.get()
        if context is None or isinstance(context, StepContext):
            self._given = (args, kwargs)
            self._own = plain_context(step, context)
            return
        self._leaf = context.scope().next_leaf(step.name)
        self._stored, self._left_out = step.arguments.encode_call(args, kwargs)
        self._context = context

    def _request(self, context: WorkflowContext) -> Request:
        step, leaf = self._step, self._leaf
        if step.queue is not None:
            from buoy.engine.authoring.remote_steps import remote_request  # it needs this module

            return remote_request(context, step, leaf, self._stored, self._left_out)
        undo = None if step.compensate is None else step.compensate.name
        # By position (leaf, name, attempt, args, key, queue, compensate): most events of most logs are made here.
        started = e.StepStarted(leaf, step.name, 1, self._stored, context.key(leaf), None, undo)
        return Request(leaf, "step", started, step, step.arguments.returns, None, self._left_out)

    def __await__(self) -> Generator[Any, Any, T]:
        if self._iterator is not None:
            raise RuntimeError(f"the call of step {self._step.name} was awaited twice; call the step again")
        context = self._context
        if context is None:
            self._iterator = self._plain().__await__()
        elif not context.is_async:
            raise NotAllowedHere("a sync workflow cannot await; use buoy.gather(...) or .result()")
        elif (known := context.recall(self._leaf, self._stored, self._step)) is not UNKNOWN:
            self._iterator = remembered(known)
        else:
            self._iterator = waiting(context, self._request(context))
        begun: Generator[Any, Any, T] = self._iterator
        return begun

    async def _plain(self) -> Any:
        token = CURRENT.set(self._own)
        try:
            found = self._call()
            return await found if self._step.is_async else found
        finally:
            CURRENT.reset(token)

    def _call(self) -> Any:
        args, kwargs = self._given
        return self._step.fn(*args, **kwargs)

    def _take(self) -> Request:
        """What it asks for, for a sync workflow, which waits for it from here on."""
        assert self._context is not None
        self._iterator = iter(())
        return self._request(self._context)

    def __del__(self) -> None:
        if self._iterator is None and self._context is not None:
            warnings.warn(f"the call of step {self._step.name} was never awaited", RuntimeWarning, stacklevel=2)

    @property
    def in_sync_workflow(self) -> bool:
        return self._context is not None and not self._context.is_async

    def refuse(self, advice: str) -> NoReturn:
        """The call cannot be used so: it is never waited for."""
        self._iterator = iter(())
        raise NotAllowedHere(f"step {self._step.name} is async, and a sync workflow cannot await it; {advice}")

    def result(self) -> T:
        """In a sync workflow: waits for the step and gives its result."""
        return cast(T, call_now(self))

    def __bool__(self) -> bool:
        raise NotAllowedHere(
            f"the call of step {self._step.name} was not awaited; write `await {self._step.name}(...)`"
        )


def waiting(context: WorkflowContext, request: Request) -> Generator[Any, Any, Any]:
    """Waits for a leaf in async code. A cancellation of the waiting task gives the leaf up."""
    try:
        return (yield from context.ask_for(request))
    except asyncio.CancelledError:
        context.give_up(request.leaf)
        raise


def remembered(outcome: Any) -> Generator[Any, Any, Any]:
    """Waits for nothing."""
    yield from ()
    return outcome


def call_now(call: StepCall[Any]) -> Any:
    """The outcome of a call for sync code: waits in a sync workflow, plainly calls outside of workflows."""
    context, step = call._context, call._step
    if context is None:
        if step.is_async:
            raise NotAllowedHere(f"step {step.name} is async: await it")
        token = CURRENT.set(call._own)
        try:
            return call._call()
        finally:
            CURRENT.reset(token)
    request = call._take()
    if context.is_async:
        raise NotAllowedHere(
            f"step {step.name} is a plain function; in an async workflow write `await {step.name}.call(...)`"
        )
    return context.ask_for(request)


def gather(*calls: Any) -> Any:
    """The outcomes of several calls that run at the same time, in the order of the calls.

    In an async workflow it is `asyncio.gather`. In a sync workflow it takes `step.call(...)` and gives a list.
    """
    context = CURRENT.get()
    if context is None or isinstance(context, StepContext) or context.is_async:
        return asyncio.gather(*calls)
    if not all(isinstance(call, StepCall) for call in calls):
        raise BadInput("buoy.gather in a sync workflow takes calls: buoy.gather(fetch.call(1), fetch.call(2))")
    return context.ask_for_all([call._take() for call in calls])


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


class _Wait(_Call[Any]):
    """An ask, a signal, a sleep or a child before it is awaited."""

    __slots__ = ("_context", "_leaf", "_request")

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

    def __bool__(self) -> bool:
        raise NotAllowedHere(f"{self._leaf} was not awaited; write `await` before it")


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
