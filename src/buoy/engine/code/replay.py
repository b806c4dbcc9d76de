"""Replay: brings workflow code back to where its log ends, and compares the two on the way.

Invariants: outcomes are delivered in log order, with the code drained between them; a leaf is matched by identity,
never by position or count. The first difference between code and log ends the replay with `Diverged`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from buoy.core.ids import LeafId
from buoy.core.limits import REPLAY_SLICE_S
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.engine.authoring.arguments import same_call
from buoy.engine.authoring.context import Request, Started, StepOutcome
from buoy.engine.authoring.failures import Failed, child_failed, step_failed
from buoy.errors import Diverged
from buoy.ports.host import Clock

STARTS: tuple[type[Started], ...] = Started.__args__
Completed = e.StepCompleted | e.ModuleCompleted
Ended = Completed | Failed | e.InteractionResponse | e.SignalReceived | e.TimerFired | e.ChildFinished
OUTCOMES: tuple[type[Ended], ...] = Ended.__args__


BODIES = (e.StepStarted, e.ModuleStarted)
_START_TYPES = frozenset(STARTS)


async def replay_in_slices(
    events: Sequence[e.Event], clock: Clock, replay: Callable[[Sequence[e.Event]], None], size: int = 64
) -> None:
    """Hands over all events in slices, and lets other runs of the process move in between."""
    began = clock.monotonic()
    for first in range(0, len(events), size):
        replay(events[first : first + size])
        if clock.monotonic() - began > REPLAY_SLICE_S:
            await asyncio.sleep(0)
            began = clock.monotonic()


class History:
    """What the visible log says about each leaf, for comparison with what the code asks for."""

    def __init__(self, events: Sequence[e.Event]) -> None:
        self.started: dict[LeafId, Started] = {}
        self.asked: set[LeafId] = set()
        self.fresh: list[LeafId] = []
        self._keeps = True
        # The log was replayed, and has nothing more that the code could ask for.
        self.over = False
        # Results of steps that can be undone: their compensations need them.
        self.results: dict[LeafId, msgspec.Raw] = {}
        kept: set[LeafId] = set()
        undoable: set[LeafId] = set()
        for event in events:
            body: Any = event.body
            if type(body) in _START_TYPES:
                self.started.setdefault(body.leaf, body)
                if type(body) is e.StepStarted and body.compensate is not None:
                    undoable.add(body.leaf)
            elif type(body) is e.StepCompleted:
                if undoable and body.leaf in undoable:
                    self.results[body.leaf] = body.result
            elif type(body) is e.BranchCreated:
                kept.update(body.kept)
        # Questions whose answers a branch kept: the code may ask them later than their place in the log, or never.
        self.kept = {leaf for leaf in kept if isinstance(self.started.get(leaf), e.InteractionRequested)}
        self.answers: dict[LeafId, Any] = {}

    def begin_again(self) -> None:
        """The code starts from its first line: nothing was asked for yet."""
        self.asked.clear()
        self.fresh.clear()

    def match(self, request: Request) -> bool:
        """Whether the log has this leaf. A leaf that is there but different is a divergence."""
        there = self.started.get(request.leaf)
        if there is None:
            if self._keeps:
                self.fresh.append(request.leaf)
            return False
        self.asked.add(request.leaf)
        here = request.started
        if type(there) is not e.StepStarted or type(here) is not e.StepStarted or there.args != here.args:
            _compare(there, request)
        return True

    def call_of(self, request: Request) -> tuple[msgspec.Raw, str]:
        """Arguments and key of a step, as the log has them. A log that was written by hand may leave them out."""
        there, here = self.started.get(request.leaf), request.started
        assert isinstance(here, BODIES)
        if there is None:
            return here.args, here.key
        assert isinstance(there, BODIES)
        return here.args if there.args == e.NULL else there.args, there.key or here.key

    def add(self, request: Request) -> None:
        """A new leaf was recorded: from here on the log has it."""
        if self._keeps:
            self.started[request.leaf] = request.started
            self.asked.add(request.leaf)

    def close(self) -> None:
        """After a replay only the questions that wait for being asked again are needed."""
        self.started = {leaf: started for leaf, started in self.started.items() if leaf in self.answers}
        self.over = not self._keeps and not self.started

    def forget(self) -> None:
        """Ends the comparison. After a replay no leaf is asked for twice, so none is kept."""
        self._keeps = False
        self.over = not self.started

    def need(self, event: e.Event, leaf: LeafId) -> None:
        """An outcome is about to be delivered: the code must have asked for its leaf."""
        if leaf not in self.asked:
            raise self._diverged(f"event {event.seq} is the outcome of {leaf}", leaf, event.seq)

    def finish(self) -> None:
        """All outcomes were delivered: the code must have asked for everything that the log has."""
        for leaf in self.started:
            if leaf not in self.asked and leaf not in self.kept:
                raise self._diverged(f"the log has {leaf}", leaf)

    def _diverged(self, what: str, leaf: LeafId, seq: int | None = None) -> Diverged:
        instead = self.fresh[0] if self.fresh else None
        asked = "no longer asks for it" if instead is None else f"asked for {instead} instead"
        return Diverged(f"{what}, but the code {asked}", log_leaf=leaf, code_leaf=instead, seq=seq)


def _compare(there: Started, request: Request) -> None:
    here = request.started
    if type(there) is not type(here):
        was = e.event_name(type(there))
        raise _differs(request, f"{request.leaf} was a {was}, and the code now asks for a {request.kind}")
    if isinstance(there, e.ChildStarted) and isinstance(here, e.ChildStarted):
        if not same_call(there.input, here.input, request.left_out):
            was, now = _show(there.input), _show(here.input)
            raise _differs(request, f"child {request.leaf} was started with {was}, and now would be with {now}")
    elif isinstance(there, BODIES) and isinstance(here, BODIES) and not _same_args(there.args, request):
        was, now = _show(there.args), _show(here.args)
        raise _differs(request, f"{request.leaf} was called with {was}, and the code now calls it with {now}")


def _differs(request: Request, text: str) -> Diverged:
    """Log and code have the same leaf, and mean something else by it."""
    return Diverged(text, log_leaf=request.leaf, code_leaf=request.leaf)


def _same_args(there: msgspec.Raw, request: Request) -> bool:
    """A log that was written by hand may leave the arguments out."""
    assert isinstance(request.started, BODIES)
    return there == e.NULL or same_call(there, request.started.args, request.left_out)


def _show(raw: msgspec.Raw) -> str:
    text = bytes(raw).decode()
    return text if len(text) <= 200 else text[:197] + "..."


def outcome_of(body: Ended, returns: Any, code: object) -> Any:
    """The value that workflow code gets, or the exception that it sees (as an object to raise).

    `code` is the workflow's function.
    """
    match body:
        case e.StepCompleted() | e.ModuleCompleted():
            return codec.decode(body.result, returns, f"the stored result of {body.leaf}")
        case e.StepFailed() | e.ModuleFailed():
            return step_failed(body, code)
        case e.InteractionResponse():
            return codec.decode(body.answer, Any, "a stored answer")
        case e.SignalReceived():
            if body.message is None:
                return TimeoutError(f"no signal came in time for {body.leaf}")
            return codec.decode(body.payload, Any, "a stored payload")
        case e.TimerFired():
            return None
        case e.ChildFinished():
            return child_outcome(body, returns, code)


def child_outcome(body: e.ChildFinished, returns: Any, code: object) -> Any:
    """A child's result, or the error that its parent sees."""
    is_step = isinstance(returns, StepOutcome)
    if body.status != "completed":
        return child_failed(body, code, is_step=is_step)
    what = f"the result of {body.leaf}" if is_step else f"the result of child {body.child}"
    return codec.decode(body.result, returns.returns if is_step else returns, what)
