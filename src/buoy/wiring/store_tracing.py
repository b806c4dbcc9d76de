"""Store tracing: notes every call of a store by its role, with its time and its end. Part of the wiring.

Invariants: the calls are read off the protocols of the port, so that no role can miss one. Without a listener a store
is not wrapped, and costs nothing more. A listener that fails is dropped: a trace never changes what a call does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, cast

import msgspec

from buoy.config import trace_file
from buoy.errors import BadInput
from buoy.ports.host import Clock
from buoy.ports.maintenance import PARTS, CountsRequests
from buoy.ports.store import Definitions, Inbox, RunLog, RunnerRegistry, Store, TaskQueue

_LOG = logging.getLogger("buoy.stores")
ROLES: tuple[type, ...] = (RunLog, Inbox, TaskQueue, RunnerRegistry, Definitions)


class StoreCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a store that has ended. `error`: the class of what it raised."""

    role: str
    call: str
    began_at: float
    took_s: float
    error: str | None = None


Listener = Callable[[StoreCall], None]


def traced(store: Store, clock: Clock, listener: Listener | None) -> Store:
    """The same store; the listener hears of each call. Without a listener the store itself."""
    if listener is None:
        return store
    made = _CountingStore if isinstance(store, CountsRequests) else _TracedStore
    return cast(Store, made(store, _Tracer(clock, listener)))


class _Tracer:
    """Times calls, and tells the listener."""

    def __init__(self, clock: Clock, listener: Listener) -> None:
        self._clock = clock
        self._listener: Listener | None = listener

    def timed(
        self, role: str, name: str, function: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*given: Any, **named: Any) -> Any:
            began_at, began = self._clock.now(), self._clock.monotonic()
            error: str | None = None
            try:
                return await function(*given, **named)
            except BaseException as raised:
                error = type(raised).__name__
                raise
            finally:
                self._notify(StoreCall(role, name, began_at, self._clock.monotonic() - began, error))

        return call

    def _notify(self, call: StoreCall) -> None:
        if self._listener is None:
            return
        try:
            self._listener(call)
        except Exception as error:  # noqa: BLE001 - whatever a listener raises must not reach the caller of the store
            _LOG.warning("the trace of the store ends here: %s", error)
            self._listener = None


class _Traced:
    """An object of the port whose coroutines are timed. Everything else is that of the target."""

    def __init__(self, target: object, roles: tuple[type, ...], tracer: _Tracer) -> None:
        self._target = target
        for role in roles:
            for name in calls_of(role):
                setattr(self, name, tracer.timed(role.__name__, name, getattr(target, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class _TracedStore(_Traced):
    """A store with all its roles and parts."""

    def __init__(self, store: Store, tracer: _Tracer) -> None:
        super().__init__(store, (*ROLES, Store), tracer)

        async def reopen() -> Store:
            return cast(Store, type(self)(await store.reopen(), tracer))

        self.reopen = tracer.timed("Store", "reopen", reopen)
        for name, role in PARTS.items():
            setattr(self, name, _Traced(getattr(store, name), (role,), tracer))


class _CountingStore(_TracedStore):
    """One whose requests cost money. A property, since newer versions of Python look for a protocol in classes only."""

    @property
    def requests(self) -> dict[str, int]:
        return cast(CountsRequests, self._target).requests


def calls_of(role: type) -> list[str]:
    """The coroutines that a role itself declares."""
    return [name for name, each in vars(role).items() if iscoroutinefunction(each)]


def trace_of_environment() -> Listener | None:
    """Appends a line of JSON for each call to the file that `BUOY_TRACE` names; None: there is no such variable."""
    path = trace_file()
    if path is None:
        return None
    try:
        _append(path, b"")
    except OSError as error:
        raise BadInput(f"the trace file {path} (BUOY_TRACE) cannot be written: {error}; name another one") from error
    return lambda call: _append(path, msgspec.json.encode(call) + b"\n")


def _append(path: Path, data: bytes) -> None:
    """One write to a file that is opened for it: several processes and threads may share the file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, data)
    finally:
        os.close(file)
