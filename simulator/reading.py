"""Reading: what a log amounts to, by a way of its own, so that a fold of the engine that is wrong is noticed.

Invariants: nothing of `core.log.lineage`, `core.log.state` and `core.log.transitions` is used. Each branch continues
from the one before it. A leaf that a release renamed is read under its old name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from buoy.core.log import events as e
from simulator.programs import RENAMED_STEPS

UNDO = "!compensation"

_STARTS = (
    *(e.StepStarted, e.ModuleStarted, e.InteractionRequested, e.SignalWaited, e.TimerStarted, e.ChildStarted),
    e.CompensationStarted,
)
_COMPLETES = (
    *(e.StepCompleted, e.ModuleCompleted, e.InteractionResponse, e.SignalReceived, e.TimerFired),
    e.CompensationCompleted,
)
_FAILS = (e.StepFailed, e.ModuleFailed, e.CompensationFailed)
_UNDOES = (e.CompensationStarted, e.CompensationRetryScheduled, e.CompensationCompleted, e.CompensationFailed)
# Claims of clients and remedies, which append something and drive nothing.
_IN_PASSING = ("requested", "recovered")


def old_name(leaf: str) -> str:
    """The name of a leaf before any release gave it another one: under both it is one effect."""
    for old, new in RENAMED_STEPS.items():
        scope, mark, name = leaf.rpartition("/")
        if name.startswith(f"{new}#"):
            return f"{scope}{mark}{old}{name.removeprefix(new)}"
    return leaf


def name_of(body: e.Body) -> str | None:
    """The leaf that an event is about. A compensation is a leaf of its own."""
    leaf = e.leaf_of(body)
    if leaf is None:
        return None
    undoes = isinstance(body, _UNDOES)
    return f"{old_name(leaf)}{UNDO}" if undoes else old_name(leaf)


def shown(log: Iterable[e.Event]) -> list[e.Event]:
    """The events that the last branch of a log can see; run-level events always."""
    found: list[e.Event] = []
    for _, seen in walked(log):
        found = seen
    return found


def walked(log: Iterable[e.Event]) -> Iterator[tuple[e.Event, list[e.Event]]]:
    """Each event, with what its branch sees up to it and with it. The list is the same one, and grows."""
    seen: list[e.Event] = []
    for event in log:
        if isinstance(event.body, e.BranchCreated):
            seen = _inherited(seen, event.body)
        seen.append(event)
        yield event, seen


def _inherited(seen: list[e.Event], branch: e.BranchCreated) -> list[e.Event]:
    kept, dropped = ({old_name(leaf) for leaf in leaves} for leaves in (branch.kept, branch.dropped))
    dropped |= {old_name(each.body.leaf) for each in seen if isinstance(each.body, e.CompensationStarted)}
    found: list[e.Event] = []
    for event in seen:
        leaf = e.leaf_of(event.body)
        within = event.seq <= branch.cutoff_seq
        if leaf is not None:
            stays = old_name(leaf) not in dropped and (within or old_name(leaf) in kept)
        else:
            stays = within or not isinstance(event.body, e.ENDINGS)
        if stays:
            found.append(event)
    return found


class Part(msgspec.Struct):
    """One leaf of a lineage: where it began and ended, and how."""

    leaf: str
    begun: e.Event
    # The attempt that is under way, or waits for its time.
    attempt: int = 1
    due_at: float | None = None
    ended: e.Event | None = None
    outcome: str = "open"

    @property
    def executes(self) -> bool:
        body = self.begun.body
        step = isinstance(body, e.StepStarted | e.ModuleStarted) and not body.group
        return step and self.ended is None and self.due_at is None


def parts_of(seen: Iterable[e.Event]) -> dict[str, Part]:
    """The leaves of a lineage, in the order in which they began."""
    found: dict[str, Part] = {}
    for event in seen:
        body, leaf = event.body, name_of(event.body)
        if leaf is None:
            continue
        if isinstance(body, _STARTS):
            _begin(found, leaf, event)
        elif leaf in found and isinstance(body, e.RetryScheduled | e.CompensationRetryScheduled):
            found[leaf].due_at = body.due_at
        elif leaf in found and found[leaf].ended is None:
            found[leaf].ended, found[leaf].outcome, found[leaf].due_at = event, _outcome(body), None
    return found


def _begin(found: dict[str, Part], leaf: str, event: e.Event) -> None:
    body = event.body
    attempt = body.attempt if isinstance(body, e.StepStarted | e.ModuleStarted | e.CompensationStarted) else 1
    if leaf in found and found[leaf].ended is None:
        found[leaf].attempt, found[leaf].due_at = attempt, None
        return
    part = found[leaf] = Part(leaf, event, attempt, getattr(body, "due_at", None))
    if isinstance(body, e.ChildStarted) and body.detach:
        part.ended, part.outcome = event, "completed"


def _outcome(body: e.Body) -> str:
    if isinstance(body, e.ChildFinished):
        return "completed" if body.status == "completed" else "failed"
    return "completed" if isinstance(body, _COMPLETES) else "failed" if isinstance(body, _FAILS) else "cancelled"


def status_of(log: list[e.Event], seen: list[e.Event], parts: dict[str, Part]) -> str:
    """The status that a person is shown."""
    for event in seen:
        if isinstance(event.body, e.ENDINGS):
            return e.event_name(type(event.body)).removeprefix("workflow_")
    if pause_of(log) is not None:
        return "paused"
    drives = [
        each.body for each in log
        if isinstance(each.body, e.Interrupted)
        or (isinstance(each.body, e.Claimed) and each.body.cause not in _IN_PASSING)
    ]  # fmt: skip
    if not drives:
        return "pending"
    if isinstance(drives[-1], e.Interrupted):
        return "interrupted"
    return _waits([part for part in parts.values() if part.ended is None])


def _waits(left: list[Part]) -> str:
    kinds = {type(part.begun.body) for part in left if not getattr(part.begun.body, "group", False)}
    if any(part.executes for part in left) or not kinds:
        return "running"
    if e.CompensationStarted in kinds:
        return "compensating"
    if e.InteractionRequested in kinds:
        return "awaiting_input"
    return "waiting_signal" if e.SignalWaited in kinds else "waiting"


def pause_of(log: list[e.Event]) -> e.Event | None:
    """The event that paused the run, if it is paused. A branch hides no pause: it lasts until an event ends it."""
    last: e.Event | None = None
    for event in log:
        if isinstance(event.body, e.Paused):
            last = event
        elif isinstance(event.body, (e.Resumed, *e.ENDINGS)):
            last = None
    return last


def times_redone(log: list[e.Event], leaf: str) -> int:
    """How often people have called this leaf back, or its effect was undone on a branch that is left."""
    branches = [each.body for each in log if isinstance(each.body, e.BranchCreated)]
    if not branches:
        return 0
    mine = old_name(leaf)
    there = {each.seq for each in shown(log)}
    undone = [
        each for each in log
        if isinstance(each.body, e.CompensationStarted) and each.body.attempt == 1
        and old_name(each.body.leaf) == mine and each.seq not in there
    ]  # fmt: skip
    back = (each for each in branches if each.cause in ("jump", "retry"))
    return len(undone) + sum(any(old_name(other) == mine for other in each.dropped) for each in back)
