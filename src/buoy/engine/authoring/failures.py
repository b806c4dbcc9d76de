"""Failures: the error that workflow code sees when a step or a child run failed.

Invariants: the error is made of what the log recorded, live and at every replay, so both behave the same. Its class is
`StepFailed` (or `RunFailed`) and also the class of the original error, as far as that class is loaded in this process:
workflow code can catch only classes that it has loaded itself. Its attributes are those of `StepFailed`; no code of the
original class runs, since what its constructor was given is not recorded.
Absent on purpose: imports. A replay must not execute a module that the workflow does not use.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, TypeVar, cast

from buoy.core.limits import ERROR_CLASS_CHARS_MAX, ERROR_CLASSES_MAX
from buoy.core.log import events as e
from buoy.errors import Problem, RunCancelled, RunFailed, StepFailed

Failed = e.StepFailed | e.ModuleFailed
_Seen = TypeVar("_Seen", StepFailed, RunFailed)
# An error of these classes does more than to report: it ends a loop, is split by `except*`, or is read by the
# interpreter when it is printed. Buoy's own errors say what Buoy does, and a step's failure must not pass for that.
_NEVER: tuple[type[BaseException], ...] = (
    Problem, StopIteration, StopAsyncIteration, SyntaxError, BaseExceptionGroup,
)  # fmt: skip
_UNNAMED = (Exception, BaseException, object)
# Flags of types: made at run time; may be inherited from.
_HEAP_TYPE = 1 << 9
_BASE_TYPE = 1 << 10


def class_names(error: BaseException) -> tuple[str, ...]:
    """The classes of an error as the log keeps them, `module:name`, the most special one first."""
    if isinstance(error, StepFailed | RunFailed):
        return error.classes
    if not isinstance(error, Exception) or isinstance(error, _NEVER):
        return ()
    names = [f"{each.__module__}:{each.__qualname__}" for each in type(error).__mro__ if each not in _UNNAMED]
    sound = [name for name in names if name.isprintable() and len(name) <= ERROR_CLASS_CHARS_MAX]
    return tuple(sound[:ERROR_CLASSES_MAX])


def step_failed(body: Failed, code: object) -> StepFailed:
    """The error of a step that failed finally. `code`: the workflow's function."""
    return _of_step(body.leaf, body.error, body.attempt, code)


def child_failed(body: e.ChildFinished, code: object, *, is_step: bool) -> Problem:
    """The error of a child run that failed or was cancelled. `is_step`: the run stands for a step with a queue."""
    error = body.error
    if is_step:
        error = error or e.ErrorInfo(type="Cancelled", message=f"its run {body.child} was cancelled")
        return _of_step(body.leaf, error, 1, code)
    why = f": {error}" if error else ""
    if body.status == "cancelled":
        return RunCancelled(f"child {body.child} was cancelled{why}", run_id=body.child)
    classes = error.classes if error else ()
    seen = _new(RunFailed, f"child {body.child} failed{why}", classes, code)
    seen.run_id, seen.type, seen.classes = body.child, error.type if error else "", classes
    return seen


def message_of(failed: StepFailed) -> str:
    """What the log keeps as the message: without the class, which is recorded beside it."""
    if not failed.reason:
        return str(failed)
    return f"{failed.step} failed" if failed.reason == failed.type else f"{failed.step} failed: {failed.reason}"


def _of_step(leaf: str, error: e.ErrorInfo, attempts: int, code: object) -> StepFailed:
    reason = error.message if error.reason is None else error.reason
    text = error.type if reason == error.type else f"{error.type}: {reason}"
    seen = _new(StepFailed, f"{leaf} failed: {text}", error.classes, code)
    seen.step, seen.type, seen.attempts = leaf, error.type, attempts
    seen.reason, seen.classes = reason, error.classes
    return seen


def _new(kind: type[_Seen], text: str, classes: tuple[str, ...], code: object) -> _Seen:
    found = _found(classes, getattr(code, "__module__", ""))
    seen = _made(kind, found) if found else None
    if seen is None:
        return kind(text)
    seen.args = (text,)
    return seen


def _found(classes: tuple[str, ...], home: str) -> tuple[type[Exception], ...]:
    """Those classes that are loaded, without those that another one inherits from."""
    found: list[type[Exception]] = []
    for name in classes:
        # The workflow's own file has another module name in a script than in a worker: look there too.
        module, _, path = name.partition(":")
        each = _loaded(module, path) or _loaded(home, path)
        if each is not None and not any(issubclass(other, each) for other in found):
            found.append(each)
    return tuple(found)


def _loaded(module: str, path: str) -> type[Exception] | None:
    value: Any = sys.modules.get(module)
    for part in path.split("."):
        value = getattr(value, "__dict__", {}).get(part)
    return cast(type[Exception], value) if isinstance(value, type) and _may_join(value) else None


def _may_join(cls: type) -> bool:
    known = issubclass(cls, Exception) and cls is not Exception and not issubclass(cls, _NEVER)
    return known and bool(cls.__flags__ & _BASE_TYPE)


def _made(kind: type[_Seen], found: tuple[type[Exception], ...]) -> _Seen | None:
    """An error of all these classes, with none of their code run; None if Python cannot join them."""
    parts: tuple[type, ...] = (kind, *found)
    joined = _joined(parts)
    if joined is None:
        return None
    # The type that lays the object out: its constructor is not the original class's own.
    layout: Any = joined
    while layout.__flags__ & _HEAP_TYPE:
        layout = layout.__base__
    seen: _Seen = layout.__new__(joined)
    kind.__init__(seen, "")
    return seen


@lru_cache(maxsize=256)
def _joined(parts: tuple[type, ...]) -> type | None:
    kind = parts[0]
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "_own": frozenset(dir(kind))}
    try:
        return type(kind.__name__, (_Joined, *parts), names)
    except Exception:  # noqa: BLE001 - two layouts that do not fit, or a metaclass of the user's that refuses
        return None


class _Joined(Problem):
    """What errors that join two classes have in common: `StepFailed` speaks, the original class is only caught."""

    _own: frozenset[str] = frozenset()
    __str__ = BaseException.__str__
    __repr__ = BaseException.__repr__
    __eq__ = BaseException.__eq__
    __hash__ = BaseException.__hash__
    __delattr__ = BaseException.__delattr__

    def __init_subclass__(cls, **options: object) -> None:
        """Without the original class's own, which may keep a list of its subclasses."""

    def __setattr__(self, name: str, value: object) -> None:
        # The original class may have a property of that name.
        if name.startswith("_") or name in type(self)._own:
            BaseException.__setattr__(self, name, value)
        else:
            self.__dict__[name] = value

    def __getattribute__(self, name: str) -> Any:
        get = BaseException.__getattribute__
        if name.startswith("_") or name in type(self)._own:
            return get(self, name)
        given: dict[str, Any] = get(self, "__dict__")
        if name in given:
            return given[name]
        raise AttributeError(
            f"{name!r} of the original error is not recorded, only its classes and its text; "
            "return what the workflow needs from the step",
            name=name,
            obj=None,
        )
