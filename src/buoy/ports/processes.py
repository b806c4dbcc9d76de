"""Process ports: how a parent starts and hears other processes of this program, and how a child hears its parent.

Invariant: a child learns of its parent's end, however the parent ends. The adapters are in `host/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

# Tells a child which one it is and where it hears its parent: NUMBER:DESCRIPTOR.
MEMBER_OPTION = "--pool-member"
# What a child names as the cause of its stop when its parent has ended.
PARENT_ENDED = "PARENT_ENDED"


class ChildProcess(Protocol):
    """One process that this one started."""

    @property
    def pid(self) -> int: ...

    def ask_to_stop(self, signal: str) -> None:
        """Asks for a graceful stop, as that signal does. Asking twice has no further effect."""
        ...

    def end_at_once(self, signal: str) -> None:
        """Ends the process as a second signal of that name does."""
        ...

    async def wait(self) -> int:
        """Its exit code; the negative number of a signal that ended it."""
        ...


class ChildProcesses(Protocol):
    """Starts processes that notice the end of this one."""

    async def start(self, words: Sequence[str], number: int, on_ready: Callable[[str], None]) -> ChildProcess:
        """Starts this program with a verb and its words. `on_ready` gets the name by which the child announces itself.

        Raises `Unavailable` if the machine cannot start a process now.
        """
        ...


class ParentProcess(Protocol):
    """The parent, as its child hears it."""

    def announce(self, name: str) -> None:
        """Tells the parent that this process is at work under that name."""
        ...

    def listen(self, on_stop: Callable[[str], None], *, end_within_s: float) -> None:
        """Calls `on_stop`, from another thread, when the parent asks for a stop or has ended.

        After the parent's end this process ends within that time, even if its event loop is held. Before the first
        call nothing was started: a stop then ends the process at once.
        """
        ...
