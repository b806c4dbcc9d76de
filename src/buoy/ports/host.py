"""Host ports: what the engine asks of its machine: time, ids, threads, commands, proof of death.

The adapters are in `host/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.ports.records import Evidence, Proof, RunnerRecord


class Sight(msgspec.Struct, frozen=True):
    """What one look from this process shows of a runner.

    `seen`: its end would be visible from here, so its silence proves nothing: it may be busy or stopped. `proof`: why
    it is certainly gone. `doubt`: why that is unknown. `stopped`: a signal has stopped its process (SIGSTOP).
    """

    seen: bool = False
    proof: Evidence | None = None
    doubt: str | None = None
    stopped: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A shell command to run for a leaf. `variables` are added to the environment of this process."""

    run_id: RunId
    leaf: LeafId
    attempt: int
    command: str
    directory: str
    variables: dict[str, str] = {}
    # Between SIGTERM and SIGKILL when it is stopped.
    grace_s: float = 5.0
    # The whole process tree is killed when it has more than that; 0: no limit.
    memory_max_bytes: int = 0
    # Longer output keeps its first half and its last lines; 0: no limit. For jobs only.
    log_max_bytes: int = 0
    # An earlier process may have started this attempt.
    again: bool = False
    # Commands of one lane share `places`: one that finds all taken begins when another ends. Empty: at once.
    lane: str = ""
    places: int = 0


# The type of the failure of a command whose guard ended silently: perhaps killed, perhaps with its command.
GUARD_LOST = "GuardLost"


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended: by an exit code or by a signal, never both."""

    exit_code: int | None
    signal: int | None
    peak_memory_bytes: int
    duration_s: float
    # The name of its log file, and the last lines in it.
    log: str
    tail: str = ""
    # The kernel killed a process of this control group out of memory while it ran.
    out_of_memory: bool = False
    # What it wrote into its result file.
    result: bytes | None = None
    # A signal asked the guard to stop it. This process asks in another way, so another process sent it.
    stopped: bool = False
    # It was killed because it had more memory than it may have.
    over_memory: bool = False


class Clock(Protocol):
    """Wall time for people and timers, monotonic time for ages."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...


class Ids(Protocol):
    """New ids and nonces. Unique without coordination."""

    def new(self, prefix: str = "") -> str: ...

    def nonce(self) -> str: ...


class Liveness(Protocol):
    """Proof of life and death on this host. How a runner's end is proven is a field of the runner (`proof`)."""

    @property
    def proof(self) -> Proof:
        """How the end of a runner of this process is proven."""
        ...

    def announce(self, runner: RunnerId) -> None:
        """Holds this runner's lock until the process ends."""
        ...

    def withdraw(self, runner: RunnerId) -> None: ...

    async def look(self, records: Iterable[RunnerRecord]) -> dict[RunnerId, Sight]:
        """Looks at these runners from here. It may open a file for each, so it does not run on the event loop."""
        ...

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        """Proof that a runner without a readable record is gone. Only its id is known."""
        ...

    async def left_behind(self) -> list[RunnerId]:
        """Runners whose process left a trace here and does not hold it. Only some of them if there are many."""
        ...

    async def clear(self, runners: Iterable[RunnerId]) -> int:
        """Removes their traces, unless a process holds them. Returns the number removed. Only for runners that are not
        registered as living: the trace of a dead runner proves its death."""
        ...


class AttemptSpan(Protocol):
    """One attempt of a step, as a tracing system sees it."""

    def enter(self) -> None:
        """Makes it current in the calling context: what the body traces is inside of it."""
        ...

    def end(self, error: str | None = None) -> None:
        """The attempt is over. A second call has no effect."""
        ...


class AttemptSpans(Protocol):
    """Begins a span for each attempt. None of them outlives its attempt, however long the run takes."""

    def begin(self, run_id: RunId, leaf: LeafId, name: str, attempt: int) -> AttemptSpan: ...


class Threads(Protocol):
    """The only way to other threads: sync steps, sync workflows and the beat."""

    def run(self, work: Callable[[], None], name: str) -> None: ...


class Shell(Protocol):
    """Runs commands as process groups that end with this process, however it ends."""

    @property
    def slots(self) -> int:
        """How many commands this machine can well run at the same time."""
        ...

    async def run(self, command: Command) -> CommandEnd:
        """Runs the command to its end. A cancellation of this call stops the command, and returns when it has ended."""
        ...

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        """Names those of these files that are not there. It asks the disk in a thread: the loop must not wait."""
        ...


class JobSpool(Protocol):
    """Keeps ends of jobs on this machine until the store has them."""

    def keep(self, run_id: RunId, leaf: LeafId, attempt: int, data: bytes) -> None: ...

    def confirmed(self, run_id: RunId, leaf: LeafId) -> None: ...

    async def read(self, run_id: RunId, leaf: LeafId, attempt: int) -> bytes | None:
        """What an earlier runner kept of this attempt."""
        ...
