"""Protocols between a decider, which runs workflow code, and its execution, which records it.

The decider asks for leaves, and the execution delivers outcomes. These are protocols because the execution is in a
higher layer (`engine.run`), and because there are three deciders.
Absent on purpose: any behaviour. See `async_decider` and `sync_decider` here, and `engine.spec.decider`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.state import State
from buoy.engine.authoring.context import Request
from buoy.engine.code.replay import History
from buoy.ports.host import Clock


class LeafMemory(Protocol):
    """Remembers the requests of leaves whose outcome is known."""

    def remember(self, request: Request) -> None: ...


class RunRecorder(Protocol):
    """The execution, as a decider sees it."""

    run_id: RunId
    replaying: bool
    history: History

    @property
    def leaves(self) -> LeafMemory: ...

    state: State
    clock: Clock

    def open_leaf(self, request: Request) -> None: ...

    def cancel_leaf(self, leaf: LeafId) -> None: ...

    def code_returned(self, value: Any) -> None: ...

    def code_raised(self, error: BaseException) -> None: ...

    @property
    def delivery_paused(self) -> bool: ...

    def diverged(self, error: Exception) -> None: ...

    def bind(self) -> None: ...

    def turn(self, work: Callable[..., None], *args: Any) -> None: ...


class Decider(Protocol):
    """Runs workflow code."""

    @property
    def busy(self) -> bool:
        """Whether workflow code is executing at this moment."""
        ...

    def begin(self, at: float) -> None:
        """Runs the code of a new run until it waits."""
        ...

    async def replay(self, events: Sequence[e.Event], at: float) -> None:
        """Brings the code back to where the visible log ends."""
        ...

    def deliver(self, leaf: LeafId, outcome: Any, at: float) -> None:
        """An exception instance as outcome is raised in the code."""
        ...

    def cancel(self, at: float) -> None: ...

    def resume_code(self) -> None:
        """The pause is over: code that was held back continues."""
        ...

    def detach(self) -> None:
        """The code can record nothing from here on."""
        ...
