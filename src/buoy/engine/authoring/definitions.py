"""Definitions: what `@buoy.step` and `@buoy.workflow` make of a function.

Absent on purpose: any global registry. A process knows the workflows that were handed to it.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, get_args, overload

from buoy.core.durations import Duration, seconds
from buoy.core.ids import check_name
from buoy.core.spec.model import ANY_SPEC, Recovery, is_spec
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.calls import child
from buoy.engine.authoring.context import CURRENT, StepContext
from buoy.engine.authoring.declaration import Retry, checked_function, checked_retry
from buoy.engine.authoring.outline import outlines_of
from buoy.engine.authoring.step_calls import StepCall, step_call
from buoy.errors import BadInput, NotAllowedHere, UnknownWorkflow

P = ParamSpec("P")
T = TypeVar("T")

_POLICIES: tuple[Recovery, ...] = get_args(Recovery)


class Step(Generic[P, T]):
    """A durable unit of work. Inside a workflow a call is recorded; outside it is an ordinary call."""

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None,
        retry: Retry,
        timeout_s: float | None,
        compensate: Step[..., Any] | None,
        queue: str | None = None,
    ) -> None:
        self.fn, self.name = checked_function(fn, "step", name)
        self.queue = None if queue is None else check_name(queue, "queue")
        self.retry = retry
        self.timeout_s = timeout_s
        self.compensate = compensate
        self.is_async = inspect.iscoroutinefunction(self.fn)
        self.arguments = Arguments(self.fn, f"step {self.name}").checked()
        self.name_results()
        if compensate is not None:
            _check_compensation(self, compensate)
            if queue is not None:
                raise BadInput(f"step {self.name} has a queue and a compensation; wrap it in a workflow that undoes it")
        self.__name__ = self.name
        self.__doc__ = self.fn.__doc__
        self.__wrapped__ = self.fn

    def name_results(self) -> None:
        """What errors about a result call it; made once, since every result comes by there."""
        self.result_text = f"the result of step {self.name}"
        self.returns_text = f"{self.result_text} and its annotation"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> StepCall[T]:
        """The call without waiting for it: await it, or hand it to `buoy.gather`."""
        return step_call(self, args, kwargs)

    @cached_property
    def remote(self) -> Workflow[..., Any]:
        """The workflow that runs this step on its queue."""
        from buoy.engine.authoring.remote_steps import as_workflow  # it needs this module

        return as_workflow(self)

    def __repr__(self) -> str:
        return f"<step {self.name}>"


def _check_compensation(step: Step[..., Any], undo: Step[..., Any]) -> None:
    """A compensation is called with the step's arguments, by name, and its result."""
    if not isinstance(undo, Step):
        raise BadInput(f"compensate of step {step.name} must be a step: put @buoy.step before {undo!r}")
    left = [name for name in undo.arguments.required if name not in step.arguments.names]
    if len(left) > 1:
        raise BadInput(
            f"compensation {undo.name} of step {step.name} asks for {', '.join(left)}; it can have the step's "
            f"arguments by name ({', '.join(step.arguments.names) or 'none'}), and one more gets its result"
        )


class AsyncStep(Step[P, T]):
    """A step made from an `async def`."""

    # None and not Any: with Any mypy cannot choose among the overloads of `asyncio.gather`, and gives Any.
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, T]:
        call: StepCall[T] = step_call(self, args, kwargs)
        if call.in_sync_workflow:
            call.refuse(f"write `{self.name}.call(...).result()`, or `buoy.gather({self.name}.call(...), ...)`")
        return call


class SyncStep(Step[P, T]):
    """A step made from a plain `def`. It runs in a thread of its own; a sync workflow waits for it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return cast(T, step_call(self, args, kwargs).now())


class Workflow(Generic[P, T]):
    """A workflow: ordinary Python whose durable calls are recorded, so that it can be replayed."""

    def __init__(self, fn: Callable[P, Any], *, name: str | None, recovery: Recovery, queue: str) -> None:
        if recovery not in _POLICIES:
            raise BadInput(f"recovery={recovery!r} is unknown; choose one of {', '.join(_POLICIES)}")
        self.fn, self.name = checked_function(fn, "workflow", name)
        self.recovery = recovery
        self.queue = check_name(queue, "queue")
        self.is_async = inspect.iscoroutinefunction(self.fn)
        self.arguments = Arguments(self.fn, f"workflow {self.name}").checked()
        self.version = content_hash(self.fn)
        self.__name__ = self.name
        self.__doc__ = self.fn.__doc__
        self.__wrapped__ = self.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """In a workflow: a child run, to be awaited."""
        context = CURRENT.get()
        if context is None or isinstance(context, StepContext):
            where = "outside of a run" if context is None else f"inside step {context.name}"
            raise NotAllowedHere(
                f"workflow {self.name} is called {where}, where nothing of it would be recorded; start it with "
                f"`await app.start({self.name}, ...)` or `buoy run`, in a test with the fixture `buoy_app`"
            )
        return child(self, args, kwargs, detach=False)

    def __repr__(self) -> str:
        return f"<workflow {self.name} {self.version}>"


class AsyncWorkflow(Workflow[P, T]):
    """A workflow made from an `async def`. A plain `def` that calls it gets the result, not a coroutine."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, T]: ...


def content_hash(fn: Callable[..., Any]) -> str:
    """A hash of the source without comments and layout, the same on every version of Python."""
    try:
        source = textwrap.dedent(inspect.getsource(fn))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER)
        words = [_word(token) for token in tokens if token.type not in layout]
        text = " ".join(words)
    except (OSError, TypeError, tokenize.TokenError, IndentationError):
        # No source to be had (a shell, a frozen program): the compiled code is the next best thing.
        text = fn.__code__.co_code.hex() + repr(fn.__code__.co_names)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _word(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.INDENT:
        return "<indent>"
    return "<dedent>" if token.type == tokenize.DEDENT else token.string


class Registry:
    """The workflows that this process has code for."""

    def __init__(self) -> None:
        self._by_name: dict[str, Workflow[..., Any]] = {}
        # Whether runs of any stored spec are taken, too.
        self.takes_specs = False

    def add(self, workflow: Workflow[..., Any]) -> None:
        """Refuses two different workflows of one name: a log could be replayed by the wrong one."""
        known = self._by_name.get(workflow.name)
        other = known is not None and known is not workflow and known.version != workflow.version
        if known is not None and other and not is_spec(workflow.name):  # a spec is found by its hash
            raise BadInput(
                f"two different workflows are named {workflow.name!r}: {_place(known.fn)} and {_place(workflow.fn)}; "
                "give one of them another name with @buoy.workflow(name=...)"
            )
        self._by_name[workflow.name] = workflow

    def get(self, name: str) -> Workflow[..., Any] | None:
        return self._by_name.get(name)

    def need(self, name: str) -> Workflow[..., Any]:
        found = self._by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise UnknownWorkflow(f"no workflow named {name!r} is known here; known: {known}")
        return found

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._by_name))

    def advertised(self) -> dict[str, Any]:
        """What the record of a runner says of these workflows: their versions, and their parameters in short."""
        outlines = outlines_of({name: workflow.arguments for name, workflow in self._by_name.items()})
        return {"workflows": self.versions(), "outlines": outlines}

    def versions(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {name: (workflow.version,) for name, workflow in self._by_name.items()}
        return {**found, ANY_SPEC: ()} if self.takes_specs else found


def _place(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{fn.__qualname__}"


@overload
def step(fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncStep[P, T]: ...  # type: ignore[overload-overlap]
@overload
def step(fn: Callable[P, T], /) -> SyncStep[P, T]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int = 0,
    backoff: Duration = 1.0,
    backoff_factor: float = 2.0,
    backoff_max: Duration = 60.0,
    never_retry: type[BaseException] | tuple[type[BaseException], ...] = (),
    classify: Callable[[BaseException], str | None] | None = None,
    timeout: Duration | None = None,
    compensate: Step[..., Any] | None = None,
    queue: str | None = None,
) -> StepMaker: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int = 0,
    backoff: Duration = 1.0,
    backoff_factor: float = 2.0,
    backoff_max: Duration = 60.0,
    never_retry: type[BaseException] | tuple[type[BaseException], ...] = (),
    classify: Callable[[BaseException], str | None] | None = None,
    timeout: Duration | None = None,
    compensate: Step[..., Any] | None = None,
    queue: str | None = None,
) -> Any:
    """Makes a function a step: recorded before it starts and when it ends, never run again once it completed.

    With a `queue`, a worker that serves that queue and has the code executes it. `classify` names the kind of an error
    ("transient", "permanent", "resource", "misconfiguration"): a transient error is retried, the others fail the step.
    The waits between tries grow from `backoff` up to `backoff_max`, and are never shorter than `backoff`.
    """
    retry = checked_retry(
        retries=retries,
        backoff=backoff,
        factor=backoff_factor,
        backoff_max=backoff_max,
        never_retry=never_retry,
        classify=classify,
    )
    timeout_s = None if timeout is None else seconds(timeout, "timeout")

    def make(function: Callable[..., Any]) -> Step[..., Any]:
        kind = AsyncStep if inspect.iscoroutinefunction(getattr(function, "__func__", function)) else SyncStep
        return kind(function, name=name, retry=retry, timeout_s=timeout_s, compensate=compensate, queue=queue)

    return make if fn is None else make(fn)


class StepMaker:
    """What `@buoy.step(...)` gives back: only for type checkers; at run time it is a plain function."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncStep[P, T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, T], /) -> SyncStep[P, T]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        raise NotImplementedError


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncWorkflow[P, T]: ...
@overload
def workflow(fn: Callable[P, T], /) -> Workflow[P, T]: ...
@overload
def workflow(*, name: str | None = None, recovery: Recovery = "resume", queue: str = "default") -> WorkflowMaker: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    recovery: Recovery = "resume",
    queue: str = "default",
) -> Any:
    """Makes a function a workflow: its log is kept, and it is replayed after a crash."""

    def make(function: Callable[..., Any]) -> Workflow[..., Any]:
        kind = AsyncWorkflow if inspect.iscoroutinefunction(getattr(function, "__func__", function)) else Workflow
        return kind(function, name=name, recovery=recovery, queue=queue)

    return make if fn is None else make(fn)


class WorkflowMaker:
    """What `@buoy.workflow(...)` gives back, for type checkers."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncWorkflow[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Workflow[P, T]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        raise NotImplementedError
