"""Functions: those that specs name, as far as this process may import them.

Invariant: a name in a spec never imports anything that was not allowed here by a person: importing executes code.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.declaration import Retry
from buoy.engine.authoring.definitions import Step
from buoy.errors import BadInput, NotAllowedHere


class Called(msgspec.Struct, frozen=True):
    """A function ready to be called. A `@buoy.step` brings its own retries and time-out."""

    fn: Callable[..., Any]
    arguments: Arguments
    is_async: bool
    retry: Retry | None = None
    timeout_s: float | None = None


class SpecFunctions:
    """Finds functions in allowed modules. `flows` allows the module `flows` and everything below it."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = tuple(allowed)
        self._found: dict[str, Called] = {}

    def find(self, target: str) -> Called:
        """The function that `package.module:function` means, or a refusal."""
        found = self._found.get(target)
        if found is None:
            found = self._found[target] = self._find(target)
        return found

    def _find(self, target: str) -> Called:
        module, _, name = target.partition(":")
        if not any(module == each or module.startswith(f"{each}.") for each in self._allowed):
            known = f"allowed: {', '.join(self._allowed)}" if self._allowed else "no calls are allowed"
            raise NotAllowedHere(f"call {target!r} is not allowed here ({known}); allow it with --allow-calls {module}")
        try:
            value: Any = importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise BadInput(f"call {target!r}: {module} cannot be imported: {type(error).__name__}: {error}") from error
        for part in name.split("."):
            value = getattr(value, part, None)
        if isinstance(value, Step):
            return Called(value.fn, value.arguments, value.is_async, value.retry, value.timeout_s)
        if not callable(value):
            raise BadInput(f"call {target!r}: {module} has no function {name!r}")
        try:
            return Called(value, Arguments(value, target).checked(), inspect.iscoroutinefunction(value))
        except ValueError as error:
            raise BadInput(f"call {target!r}: its parameters cannot be read: {error}") from error


def check_inputs(called: Called, target: str, given: Iterable[str]) -> None:
    """Refuses inputs that the function does not take, and says which it needs."""
    try:
        called.arguments.signature.bind(**dict.fromkeys(given))
    except TypeError as error:
        raise BadInput(f"call {target!r}: {error}; it takes {called.arguments.signature}") from error
