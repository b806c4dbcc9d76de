"""Declaration: what `@buoy.step` and `@buoy.workflow` may be put on, and which options they take.

Invariant: what could never work is refused here, where the author sees it, and not in a run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import msgspec

from buoy.core.durations import Duration, seconds
from buoy.core.ids import check_name
from buoy.core.limits import BACKOFF_MAX_S, RETRIES_MAX
from buoy.errors import BadInput


class Retry(msgspec.Struct, frozen=True):
    """How often and how soon a failed attempt is repeated."""

    retries: int = 0
    backoff_s: float = 1.0
    factor: float = 2.0
    backoff_max_s: float = 60.0
    never_on: tuple[type[BaseException], ...] = ()
    # Its own word on what an error is: transient, permanent, resource, misconfiguration; None: no opinion.
    classify: Callable[[BaseException], str | None] | None = None

    def delay_s(self, attempt: int) -> float:
        """The wait after attempt `attempt` failed. No jitter: a durable wait need not be random."""
        most_s = max(self.backoff_max_s, min(self.backoff_s, BACKOFF_MAX_S))
        return min(self.backoff_s * self.factor ** min(attempt - 1, 60), most_s)


def checked_retry(
    *,
    retries: int,
    backoff: Duration,
    factor: float,
    backoff_max: Duration,
    never_retry: type[BaseException] | tuple[type[BaseException], ...],
    classify: Callable[[BaseException], str | None] | None,
) -> Retry:
    """The options of a step that say what happens after an error, or a refusal that names the wrong one."""
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= RETRIES_MAX:
        raise BadInput(f"invalid retries={retries!r}; write a whole number from 0 to {RETRIES_MAX}")
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not number or not math.isfinite(factor) or factor <= 0:
        raise BadInput(f"invalid backoff_factor={factor!r}; write a number above 0, such as 2.0")
    classes = never_retry if isinstance(never_retry, tuple | list) else (never_retry,)
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise BadInput(f"invalid never_retry: {each!r} is not an exception class; write never_retry=(ValueError,)")
    if classify is not None and not callable(classify):
        raise BadInput(f"invalid classify={classify!r}; pass a function from an exception to a word or None")
    return Retry(
        retries=retries,
        backoff_s=seconds(backoff, "backoff"),
        factor=factor,
        backoff_max_s=min(seconds(backoff_max, "backoff_max"), BACKOFF_MAX_S),
        never_on=tuple(classes),
        classify=classify,
    )


def checked_function(fn: Any, kind: str, name: str | None) -> tuple[Callable[..., Any], str]:
    """The function that is made a step or workflow (`kind`), and its name; or a refusal that says what to write."""
    if isinstance(fn, staticmethod):
        fn = fn.__func__
    if isinstance(fn, classmethod) or _takes_self(fn):
        called = getattr(fn, "__qualname__", "it")
        raise BadInput(
            f"a {kind} cannot be a method: {called}; make it a function, and pass what it needs as arguments"
        )
    if not callable(fn) or isinstance(fn, type) or not hasattr(fn, "__name__") or hasattr(fn, "arguments"):
        raise BadInput(f"@buoy.{kind} takes a function: {fn!r}; put it on a `def` or an `async def`")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise BadInput(
            f"a {kind} cannot be a generator: {fn.__qualname__} has a `yield`; return a list, or call one step per item"
        )
    if name is None and fn.__name__ == "<lambda>":
        raise BadInput(f"a lambda has no name; write buoy.{kind}(name=...)(lambda ...), or use a `def`")
    return fn, check_name(fn.__name__ if name is None else name, kind)


def _takes_self(fn: Any) -> bool:
    """Whether it is defined in the body of a class and takes the object or the class first."""
    if not inspect.isfunction(fn):
        return False
    where = fn.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(fn).parameters), None)
    return bool(where) and not where.endswith("<locals>") and first in ("self", "cls")
