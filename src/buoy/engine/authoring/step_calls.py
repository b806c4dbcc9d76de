"""Step calls: what a call of a step gives, in workflow code and outside of it.

Invariant: a call takes its identity when it is made and stores its arguments then; what happens later to the caller's
objects changes nothing.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Collection, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

import msgspec

from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.engine.authoring.context import CURRENT, UNKNOWN, Request, StepContext, WorkflowContext, plain_context
from buoy.errors import NotAllowedHere

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Step

T = TypeVar("T")


class DurableCall(Coroutine[Any, Any, T], Generic[T]):
    """A durable call before it is awaited: a coroutine, so that any asyncio form takes it.

    Python warns of a coroutine that nothing ever awaits. This class does, too: otherwise a forgotten `await` is silent.
    """

    __slots__ = ("_context", "_iterator")

    _context: WorkflowContext
    # What the code should write instead of using the call as if it were the result.
    unawaited_advice = "write `await` before it"

    def __init__(self) -> None:
        self._iterator: Any = None

    def in_words(self) -> str:
        """What the call is, for errors and warnings."""
        raise NotImplementedError

    def send(self, value: Any) -> Any:
        return (self._iterator or self.__await__()).send(value)

    def throw(self, *args: Any) -> Any:
        if self._iterator is None:
            # Cancelled before it began: it never asks for its leaf.
            self._iterator = iter(())
            raise args[0] if isinstance(args[0], BaseException) else args[0](*args[1:2])
        return self._iterator.throw(*args)

    def close(self) -> None:
        if self._iterator is None:
            self._iterator = iter(())  # given up before it began, on purpose
        elif hasattr(self._iterator, "close"):
            self._iterator.close()

    def __bool__(self) -> bool:
        raise NotAllowedHere(f"{self.in_words()} was not awaited; {self.unawaited_advice}")

    def __del__(self) -> None:
        # Code that is cut off between a call and its `await` forgot nothing.
        if self._iterator is None and not self._context.is_cut_off:
            text = f"{self.in_words()} was never awaited, so it did not happen; {self.unawaited_advice}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


class StepCall(DurableCall[T]):
    """A call of a step: a coroutine that any asyncio form takes.

    What it asks for is made when it is awaited and its outcome is not known. A replay knows most outcomes, and does
    little else than to make such calls: each call of Python less for each of them is felt.
    """

    __slots__ = ("_leaf", "_left_out", "_step", "_stored")

    in_sync_workflow = False

    def __init__(
        self,
        step: Step[..., Any],
        context: WorkflowContext,
        leaf: LeafId,
        stored: msgspec.Raw,
        left_out: Collection[str],
    ) -> None:
        self._step = step
        self._iterator: Any = None
        self._context = context
        self._leaf = leaf
        self._stored = stored
        self._left_out = left_out

    def _request(self) -> Request:
        step, leaf, context = self._step, self._leaf, self._context
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
        known = self._context.recall(self._leaf, self._stored, self._step)
        begun = waiting(self._context, self._request()) if known is UNKNOWN else remembered(known)
        self._iterator = begun
        return begun

    def take(self) -> Request:
        """What it asks for, for a sync workflow, which waits for it from here on."""
        self._iterator = iter(())
        return self._request()

    def in_words(self) -> str:
        return f"the call of step {self._step.name}"

    def refuse(self, advice: str) -> NoReturn:
        """The call cannot be used so: it is never waited for."""
        self._iterator = iter(())
        raise NotAllowedHere(f"step {self._step.name} is async, and a sync workflow cannot await it; {advice}")

    def result(self) -> T:
        """In a sync workflow: waits for the step and gives its result."""
        return cast(T, self.now())

    def now(self) -> Any:
        """The outcome for sync code, which waits for it."""
        request = self.take()
        if self._context.is_async:
            raise NotAllowedHere(
                f"step {self._step.name} is a plain function; in an async workflow write "
                f"`await {self._step.name}.call(...)`"
            )
        return self._context.ask_for(request)


class SyncCall(StepCall[T]):
    """A call of a step in a sync workflow."""

    __slots__ = ()

    in_sync_workflow = True
    unawaited_advice = "ask for its `.result()`, or hand it to `buoy.gather`"

    def __await__(self) -> NoReturn:
        raise NotAllowedHere("a sync workflow cannot await; use buoy.gather(...) or .result()")


class PlainCall(StepCall[T]):
    """A call of a step outside of a workflow, or inside another step: a call of its function."""

    __slots__ = ("_given", "_own")

    def __init__(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], outer: StepContext | None
    ) -> None:
        self._step = step
        self._iterator: Any = None
        self._given = (args, kwargs)
        self._own = plain_context(step, outer)

    def __await__(self) -> Generator[Any, Any, T]:
        if self._iterator is not None:
            raise RuntimeError(f"the call of step {self._step.name} was awaited twice; call the step again")
        begun: Generator[Any, Any, T] = self._await().__await__()
        self._iterator = begun
        return begun

    async def _await(self) -> Any:
        token = CURRENT.set(self._own)
        try:
            found = self._call()
            return await found if self._step.is_async else found
        finally:
            CURRENT.reset(token)

    def now(self) -> Any:
        if self._step.is_async:
            raise NotAllowedHere(f"step {self._step.name} is async: await it")
        token = CURRENT.set(self._own)
        try:
            return self._call()
        finally:
            CURRENT.reset(token)

    def _call(self) -> Any:
        args, kwargs = self._given
        return self._step.fn(*args, **kwargs)

    def __del__(self) -> None:
        """A plain function may stay uncalled."""


def step_call(step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepCall[Any]:
    """A call of a step where the caller stands: durable in a workflow, else plain."""
    context = CURRENT.get()
    if context is None or isinstance(context, StepContext):
        return PlainCall(step, args, kwargs, context)
    leaf = (context.only_scope or context.scope()).next_leaf(step.name)
    stored, left_out = step.arguments.encode_call(args, kwargs)
    return (StepCall if context.is_async else SyncCall)(step, context, leaf, stored, left_out)


def waiting(context: WorkflowContext, request: Request) -> Generator[Any, Any, Any]:
    """Waits for a leaf in async code. A cancellation of the waiting task gives the leaf up."""
    try:
        return (yield from context.ask_for(request))
    except asyncio.CancelledError:
        context.give_up(request.leaf)
        raise


def remembered(outcome: Any) -> Generator[Any, Any, Any]:
    """Waits for nothing."""
    return outcome
    yield  # type: ignore[unreachable]  # makes it a generator
