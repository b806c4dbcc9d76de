"""Step attempt: executes the body of a step, on the real loop (async) or on a bounded pool of threads (sync).

Invariants: a body starts only after its `step_started` is durable (the execution sees to that); a body that was given
up reports nothing, and does not begin any more. A sync step cannot be killed: if it times out, its outcome waits for
the end of its thread, and so does its retry. On its last attempt it waits for `THREAD_END_MAX_S` at most.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import msgspec

from buoy.core.diagnosis.error_classes import CLASSES
from buoy.core.limits import ERROR_TEXT_CHARS_MAX, THREAD_END_MAX_S
from buoy.core.log import codec
from buoy.core.log.events import ErrorInfo
from buoy.core.log.storable import storable_text
from buoy.engine.authoring.context import CURRENT, GivenBack, StepContext
from buoy.engine.authoring.definitions import Step
from buoy.engine.authoring.failures import class_names, message_of
from buoy.engine.services.step_tasks import StepTasks
from buoy.engine.services.thread_pool import ThreadPool
from buoy.errors import BadInput, CommandFailed, NotAllowedHere, NotJson, StepFailed, TooLarge

_NEVER_AGAIN = ("permanent", "misconfiguration", "cancelled")
# Errors that would be the same at every attempt.
_HOPELESS = (BadInput, NotAllowedHere, NotJson, TooLarge)


class Success(msgspec.Struct, gc=False):
    """A body's result: as stored, and as workflow code sees it."""

    stored: msgspec.Raw
    value: Any


class Failure(msgspec.Struct):
    error: ErrorInfo


class EngineFailure(msgspec.Struct):
    """No outcome: the engine itself failed while it executed the body."""

    error: Exception


class CutOff(msgspec.Struct):
    """No outcome: the stop of this runner ended the body's work."""


BodyEnd = Success | Failure | EngineFailure | CutOff


# From 3.14 on a thread has one current task, whatever its loops: workflow code then cannot run inside a step's task.
_NESTS = sys.version_info < (3, 14)

# Never raises: it is the door of the body's run.
Report = Callable[[BodyEnd], None]


def certain(end: BodyEnd) -> Success | Failure:
    """The outcome of a body. A crash of the engine is raised, inside the door of the body's run."""
    if isinstance(end, EngineFailure):
        raise end.error
    assert not isinstance(end, CutOff), "only commands are cut off, and no command undoes a step"
    return end


class StepAttempt:
    """One attempt of one step, under way."""

    task: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _timed_out = False
    # Of a sync step: the name of its thread; whether it was taken back before it began; who waits for its end.
    thread = ""
    _withdrawn = False
    _over = True
    on_over: Callable[[], None] | None = None
    _given: tuple[list[Any], dict[str, Any]]

    def __init__(self, step: Step[..., Any], context: StepContext, report: Report) -> None:
        self._step = step
        self._context = context
        self._report: Report | None = report
        # The first caller takes it, in any thread: the body that begins, or the caller that withdraws it.
        self._turn = bytearray(1)

    def crashed(self, error: Exception) -> None:
        """The engine failed while it executed this body."""
        self.task = None
        self._finish(EngineFailure(error))

    def start(self, raw: msgspec.Raw, step_tasks: StepTasks, pool: ThreadPool | None) -> None:
        step = self._step
        try:
            given = step.arguments.decode(raw)
        except BadInput as error:
            self._finish(self._failure(error))
            return
        if step.is_async:
            self._given = given
            step_tasks.add(self)
        elif pool is None:
            self._finish(self._call(*given))
        else:
            self._start_sync(pool, *given)

    def call_back(self) -> bool:
        """Whether it had not started, and never will."""
        if not self._withdraw():
            return False
        self.give_up()
        return True

    @property
    def acts(self) -> bool:
        """Whether its thread is at work, wanted or not."""
        return not self._over and not self._turn and not self._withdrawn

    def _withdraw(self) -> bool:
        if self._first():
            self._withdrawn = True
            return True
        return False

    def _first(self) -> bool:
        try:
            return self._turn.pop() == 0
        except IndexError:
            return False

    def give_up(self) -> None:
        """Its outcome is not wanted any more. An async body is cancelled, a sync one can ask `buoy.abandoned()`."""
        self._report = None
        self._withdraw()
        self._context.abandon()
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()

    # async

    async def begin(self) -> None:
        """Reports from inside the task: a callback of it would cost one more turn of the loop for every step."""
        if self._report is None or not self._turn:
            self.task = None  # it is the next body's
            return
        self._turn.clear()
        self._context.enter()
        outcome: BodyEnd
        try:
            step, (args, kwargs) = self._step, self._given
            if step.timeout_s is None:
                outcome = self._success(await step.fn(*args, **kwargs))
            else:
                outcome = self._success(await self._bounded(args, kwargs, step.timeout_s))
        except asyncio.CancelledError as error:
            if self._report is None:
                raise  # given up: no caller wants an outcome
            outcome = self._failure(error)
        except GivenBack:
            outcome = CutOff()
        except (SystemExit, KeyboardInterrupt) as error:
            # A step must not end the runner and all the other runs in it.
            outcome = self._failure(RuntimeError(f"step {self._step.name} tried to end the process: {error!r}"))
        except BaseException as error:  # noqa: BLE001 - whatever a step raises is its outcome, and is recorded
            outcome = self._failure(error)
        self.task = None
        if _NESTS:
            self._finish(outcome)
        else:
            asyncio.get_running_loop().call_soon(self._finish, outcome)

    async def _bounded(self, args: list[Any], kwargs: dict[str, Any], timeout_s: float) -> Any:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await self._step.fn(*args, **kwargs)
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(self._too_slow()) from error
            raise

    def _too_slow(self) -> str:
        return f"step {self._step.name} took longer than its timeout of {self._step.timeout_s:g} s"

    # sync

    def _start_sync(self, pool: ThreadPool, args: list[Any], kwargs: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        context = copy_context()

        def work() -> None:
            if not self._first():
                loop.call_soon_threadsafe(pool.done)
                return
            self.thread = threading.current_thread().name
            try:
                outcome: BodyEnd = context.run(self._call, args, kwargs)
            except Exception as error:  # noqa: BLE001 - reported to the run
                outcome = EngineFailure(error)
            loop.call_soon_threadsafe(self._sync_done, outcome, pool)

        if self._step.timeout_s is not None:
            self._timer = loop.call_later(self._step.timeout_s, self._sync_late)
        self._over = False
        pool.submit(work)

    def _call(self, args: list[Any], kwargs: dict[str, Any]) -> Success | Failure:
        token = self._context.enter()
        try:
            return self._success(self._step.fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - whatever a step raises is its outcome, and is recorded
            return self._failure(error)
        finally:
            CURRENT.reset(token)

    def _sync_late(self) -> None:
        self._timed_out = True
        self._context.abandoned = True
        step, context = self._step, self._context
        if self._withdraw():
            none_free = f"step {step.name} found no free thread within its timeout of {step.timeout_s:g} s"
            self._finish(self._failure(TimeoutError(none_free)))
            return
        context.reports.progressed(context.leaf, None, None, f"timed out, and its thread {self.thread} still acts")
        if context.attempt > step.retry.retries:
            self._timer = asyncio.get_running_loop().call_later(THREAD_END_MAX_S, self._sync_stays)

    def _sync_stays(self) -> None:
        """Its thread does not end. The run continues without it."""
        text = f"{self._too_slow()}, and its thread {self.thread} still acts {THREAD_END_MAX_S:g} s later"
        error = self._failure(TimeoutError(text)).error
        facts = {**error.facts, "thread": self.thread}
        self._finish(Failure(msgspec.structs.replace(error, facts=facts)))

    def _sync_done(self, outcome: BodyEnd, pool: ThreadPool) -> None:
        pool.done()
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._timed_out:
            outcome = self._failure(TimeoutError(self._too_slow()))
        self._finish(outcome)
        if self.on_over is not None:
            self.on_over()

    # outcomes

    def _finish(self, outcome: BodyEnd) -> None:
        report, self._report = self._report, None
        if report is not None:
            report(outcome)

    def _success(self, value: Any) -> Success | Failure:
        step = self._step
        try:
            stored = codec.encode(value, step.result_text)
            return Success(stored, codec.same_after_storage(value, step.arguments.returns, stored, step.returns_text))
        except (NotJson, TooLarge, BadInput) as error:
            return self._failure(error)

    def _failure(self, error: BaseException) -> Failure:
        hopeless = isinstance(error, (*_HOPELESS, *self._step.retry.never_on))
        info = error_info(error, retryable=not hopeless)
        classify = self._step.retry.classify
        return Failure(info if classify is None else _classified(info, error, classify))


def _classified(info: ErrorInfo, error: BaseException, classify: Callable[[BaseException], str | None]) -> ErrorInfo:
    """The error with the class that the user gives it. What a person must correct is not tried again."""
    try:
        said = classify(error)
    except Exception as broken:  # noqa: BLE001 - the user's code; reported with the error that it should have classified
        text = f"{info.message} (and its classifier failed: {type(broken).__name__}: {broken})"
        return msgspec.structs.replace(info, message=text[:ERROR_TEXT_CHARS_MAX])
    if said is None:
        return info
    if said not in CLASSES:
        text = f"{info.message} (and its classifier says {said!r}, which is none of {', '.join(CLASSES)})"
        return msgspec.structs.replace(info, message=text[:ERROR_TEXT_CHARS_MAX])
    return msgspec.structs.replace(info, kind=said, retryable=info.retryable and said not in _NEVER_AGAIN)


def error_info(error: BaseException, *, retryable: bool = True) -> ErrorInfo:
    """An error as the log keeps it."""
    if isinstance(error, CommandFailed):
        # The place in Buoy that raised it does not help the reader; how the command ended does.
        text = storable_text(_text_of(error))
        return ErrorInfo(error.type, text, retryable=retryable, kind=error.kind, facts=error.facts)
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except Exception as broken:  # noqa: BLE001 - an error of the user's own making whose text cannot be made
        lines = [f"no traceback: {type(broken).__name__}"]
    known = error if isinstance(error, StepFailed) and error.type else None
    return ErrorInfo(
        type=type(error).__name__ if known is None else known.type,
        message=storable_text(_text_of(error) if known is None else message_of(known)),
        retryable=retryable,
        kind="unknown" if retryable else "permanent",
        traceback=storable_text("".join(lines)[-ERROR_TEXT_CHARS_MAX:]),
        classes=class_names(error),
        reason=storable_text(known.reason) if known is not None and known.reason else None,
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception as broken:  # noqa: BLE001 - an error of the user's own making whose text cannot be made
        return f"{type(error).__name__}, whose text cannot be made: {type(broken).__name__}"
