"""Evidence: all that is known of one run when everything is over. What invariants are asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.log.events import Parent
from buoy.core.log.state import State, fold
from buoy.ports.records import Message, RunnerInfo
from simulator.programs import Node
from simulator.witness import Acknowledged, BodyEvent, Sent, Touched


class Reach(msgspec.Struct, frozen=True):
    """The scope of a process that acts by itself."""

    stack: str | None = None
    env: str | None = None
    # Runs of other systems, too.
    adopt: bool = False


class Asked(msgspec.Struct, frozen=True):
    """How a run was to begin."""

    workflow: str
    input: Any
    policy: str = "resume"
    queue: str = "default"
    stack: str | None = None
    env: str | None = None
    parent: Parent | None = None
    # Versions of the code that it may begin with; none: that of its starter.
    versions: tuple[str, ...] = ()


class Evidence(msgspec.Struct):
    """All that is known of one run at the end."""

    run_id: str
    log: list[e.Event]
    inbox: list[Message]
    # As the store shows it; None if it does not know the run.
    document: Document | None
    program: Node
    # A start of it was acknowledged.
    started: bool = False
    cancelled: bool = False
    # The run was purged: the log is the one that it had before.
    purged: bool = False
    # Its document was spoiled when the log had so many events.
    damaged_at: int | None = None
    # Code was deployed that may not fit.
    deployed: bool = False
    # What was seen of the log earlier on.
    earlier: Sequence[e.Event] = ()
    # How each run of this seed ended, as often as it did.
    ends: dict[str, list[e.Body]] = {}
    # Who each runner was; and the scopes of the processes that act by themselves, not at a person's request.
    runners: dict[str, RunnerInfo] = {}
    scopes: dict[str, Reach] = {}
    touches: Sequence[Touched] = ()
    # The document that another system wrote, if it is such a run.
    foreign: Document | None = None
    # Nonce of a commit -> process that sent it.
    writers: dict[str, str] = {}
    commits: Sequence[Acknowledged] = ()
    sends: Sequence[Sent] = ()
    bodies: Sequence[BodyEvent] = ()
    # How many requests to go back each process made; and of the branches that were acknowledged, by their numbers,
    # whether answers were to be kept.
    backs: dict[str, int] = {}
    keeps: dict[int, bool] = {}
    folded: State | None = None
    # Runs that the store has, or had; among them those that were purged, and those that this run has asked to cancel.
    born: frozenset[str] = frozenset()
    buried: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    # How often its own code, and not a step of it, ended the process that ran it.
    code_deaths: int = 0
    # A clock was set: what is due in a minute still comes in a minute, whatever that clock says then.
    clocks_set: bool = False
    # When faults ended, by the clock of the only host; None: lateness cannot be judged here.
    calm_at: float | None = None
    # How it was to begin; None: it is not known who asked for it.
    asked: Asked | None = None
    # How long the story lasted, where the store has a clock that times the runs; None: each machine's clock does.
    lasted_s: float | None = None

    @property
    def state(self) -> State:
        if self.folded is None or self.folded.head_seq != (self.log[-1].seq if self.log else 0):
            self.folded = fold(RunId(self.run_id), self.log)
        return self.folded


Check = Callable[[Evidence], Iterator[str]]


def text_of(what: object) -> str:
    """As text, the same in every process: no addresses."""
    return msgspec.json.encode(what).decode()
