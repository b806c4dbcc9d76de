"""Context: where a durable call stands. Workflow code and steps each find theirs through one context variable.

Invariant: a scope numbers its leaves and its concurrent parts in the order in which workflow code makes them, so that
timing never changes an identity.
"""

from __future__ import annotations

import secrets
import threading
import warnings
from collections.abc import Collection
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from buoy.core.ids import LeafId, RunId, leaf_id
from buoy.core.log import events as e
from buoy.core.log.leaf import LeafKind
from buoy.errors import NotAllowedHere
from buoy.ports.host import AttemptSpan

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Step, Workflow

# Stands for the run in a step that is called outside of any run, in a unit test say.
DIRECT_CALL = RunId("direct-call")
# A step may call others from several threads.
_COUNTING = threading.Lock()

# What `recall` gives for an outcome that is still to come: any other value may be a step's result.
UNKNOWN = object()

Started = e.StepStarted | e.ModuleStarted | e.InteractionRequested | e.SignalWaited | e.TimerStarted | e.ChildStarted


class CallScope:
    """One concurrent part of a workflow: its path, and its counters."""

    __slots__ = ("_counts", "_parts", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._parts = 0
        self._counts: dict[str, int] = {}

    def next_leaf(self, name: str) -> LeafId:
        """The identity of the next call of this name; taken when the call is made, not when it is awaited."""
        counts = self._counts
        occurrence = counts[name] = counts.get(name, 0) + 1
        # `leaf_id`, without a call more for the root scope, where most leaves are.
        return leaf_id(self.path, name, occurrence) if self.path else LeafId(f"{name}#{occurrence}")

    def next_part(self) -> CallScope:
        """The scope of a concurrent part that is made here."""
        self._parts += 1
        return CallScope(f"{self.path}.{self._parts}" if self.path else str(self._parts))


class StepOutcome(msgspec.Struct, frozen=True):
    """The type of a leaf's result, for a child run that stands for a step: its failure is a step's failure."""

    returns: Any


class Request(msgspec.Struct, gc=False):
    """A leaf that workflow code asks for: the event that starts it, and how to read its outcome."""

    leaf: LeafId
    kind: LeafKind
    started: Started
    step: Step[..., Any] | None = None
    returns: Any = Any
    workflow: Workflow[..., Any] | None = None
    # Arguments that the code left to their defaults: the log may have others.
    left_out: Collection[str] = ()


class WorkflowContext(Protocol):
    """What durable calls in workflow code talk to; one for async, one for sync workflows."""

    run_id: RunId
    # The scope of all code, as long as no concurrent part was made.
    only_scope: CallScope | None

    def scope(self) -> CallScope: ...

    def now(self) -> float: ...

    def key(self, leaf: LeafId) -> str: ...

    def child_id(self, leaf: LeafId) -> RunId: ...

    def recall(self, leaf: LeafId, args: msgspec.Raw, step: Step[..., Any]) -> Any:
        """Async only: the result of a step, if it is known already and the code need not wait. Else `UNKNOWN`."""
        ...

    def ask_for(self, request: Request) -> Any:
        """Async: a future of the outcome. Sync: waits, and gives the outcome."""
        ...

    def give_up(self, leaf: LeafId) -> None:
        """Async only: the code no longer waits for this leaf."""
        ...

    def ask_for_all(self, requests: list[Request]) -> list[Any]:
        """Sync only: waits for all of them."""
        ...

    @property
    def is_async(self) -> bool: ...

    @property
    def is_cut_off(self) -> bool:
        """Whether the process let go of the code before its end, for example at a stop."""
        ...


class GivenBack(BaseException):
    """Raised by a step's body that the stop of its runner cut off. It has no outcome: the next runner does it again."""


class StepReports(Protocol):
    """What a step tells its run while it executes, from any thread."""

    def progressed(self, leaf: LeafId, done: float | None, total: float | None, note: str) -> None: ...

    def published(self, item: e.PublishedItem) -> None: ...


class Unheard:
    """Drops the reports of a step that is called outside of any run."""

    def progressed(self, leaf: LeafId, done: float | None, total: float | None, note: str) -> None:
        """Nothing shows it."""

    def published(self, item: e.PublishedItem) -> None:
        """Nothing keeps it."""


class StepContext(msgspec.Struct):
    """What a step can know about itself. `key` is stable over retries and crashes: hand it to whatever you call."""

    run_id: RunId
    leaf: LeafId
    name: str
    attempt: int
    key: str
    reports: StepReports
    # For sync steps, which cannot be interrupted: true once the run no longer waits for the result.
    abandoned: bool = False
    # Of a step that another step calls as a plain function: the step that calls. `key` is what is added to its key.
    outer: StepContext | None = None
    calls: CallScope | None = None
    # Of the attempt, if this process is traced.
    span: AttemptSpan | None = None

    def enter(self) -> Token[WorkflowContext | StepContext | None]:
        """The body of the step begins, in the calling context."""
        if self.span is not None:
            self.span.enter()
        return CURRENT.set(self)

    def abandon(self) -> None:
        """The run no longer waits for the result."""
        self.abandoned = True
        if self.span is not None:
            self.span.end("given up")

    @property
    def whole_key(self) -> str:
        """The idempotency key. Made when it is asked for: `crashtest` shows who never asks."""
        return self.key if self.outer is None else f"{self.outer.whole_key}/{self.key}"

    def inside(self, name: str) -> StepContext:
        """The context of a step that this one calls: the same attempt, and a key of its own that is as stable."""
        with _COUNTING:
            self.calls = self.calls or CallScope()
            call = self.calls.next_leaf(name)
        return StepContext(self.run_id, self.leaf, name, self.attempt, call, self.reports, outer=self)

    @property
    def given_up(self) -> bool:
        return self.abandoned or (self.outer is not None and self.outer.given_up)


def direct_context(name: str) -> StepContext:
    """The context of a step that is called outside of any run. Its key is random: no two calls may share one."""
    key = f"{DIRECT_CALL}/{name}/{secrets.token_hex(16)}"
    return StepContext(DIRECT_CALL, leaf_id("", name, 1), name, 1, key, Unheard())


def plain_context(step: Step[..., Any], outer: StepContext | None) -> StepContext:
    """Where a step stands that is called as a plain function: in another step, or outside of any run."""
    if outer is None:
        return direct_context(step.name)
    unused = {"retries": step.retry.retries, "timeout": step.timeout_s, "compensate": step.compensate}
    given = [name for name, value in {**unused, "queue": step.queue}.items() if value]
    if given:
        warnings.warn(
            f"step {step.name} is called inside step {outer.name}, which makes it a plain function: Buoy "
            f"ignores its {', '.join(given)}; call it from the workflow",
            RuntimeWarning,
            stacklevel=5,
        )
    return outer.inside(step.name)


CURRENT: ContextVar[WorkflowContext | StepContext | None] = ContextVar("buoy_current", default=None)


def workflow_context(what: str) -> WorkflowContext:
    """The context of the workflow code that calls, or a refusal that says what to do."""
    context = CURRENT.get()
    if context is None:
        raise NotAllowedHere(f"{what} works in workflow code only, and no workflow is running here")
    if isinstance(context, StepContext):
        raise NotAllowedHere(
            f"{what} works in workflow code only, and this is step {context.name}; "
            "call it from the workflow, before or after the step"
        )
    return context


def step_context(what: str) -> StepContext:
    """The context of the step that calls, or a refusal."""
    context = CURRENT.get()
    if context is None:
        raise NotAllowedHere(
            f"{what} works inside a step only, and no step is known in this thread; a thread that a step starts "
            "gets the step's context by `pool.submit(contextvars.copy_context().run, fn, ...)` or `asyncio.to_thread`"
        )
    if not isinstance(context, StepContext):
        raise NotAllowedHere(f"{what} works inside a step only, and this is workflow code")
    return context
