"""Families: what must hold between a run and its children, and of what a person calls back.

Pure, as `invariants`: evidence in, complaints out; and each can fail.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.log import events as e
from simulator.evidence import Check, Evidence
from simulator.reading import Part, old_name, parts_of, shown, times_redone, walked


def children_of_ended_runs_are_notified(found: Evidence) -> Iterator[str]:
    """Who fails, is cancelled or gives a child up asks it to cancel, unless it was detached or has ended."""
    seen = shown(found.log)
    failed = any(isinstance(each.body, e.WorkflowFailed | e.WorkflowCancelled) for each in seen)
    here: set[str] = set()
    for part in parts_of(seen).values():
        body = part.begun.body
        if not isinstance(body, e.ChildStarted):
            continue
        here.add(body.child)
        gone = failed or part.outcome == "cancelled"
        if gone and not body.detach and part.outcome not in ("completed", "failed") and _can_be_told(found, body.child):
            yield f"{body.child} was given up, and was not asked to cancel"
    if not any(isinstance(each.body, e.ENDINGS) for each in seen):
        return
    ended = {each.body.child for each in found.log if isinstance(each.body, e.ChildFinished)}
    for event in found.log:
        body = event.body
        left = isinstance(body, e.ChildStarted) and not body.detach and body.child not in here | ended
        if isinstance(body, e.ChildStarted) and left and _can_be_told(found, body.child):
            yield f"{body.child} was left behind by a branch, and was not asked to cancel"


def _can_be_told(found: Evidence, child: str) -> bool:
    """Whether it is there, and was not asked to cancel. A run that was purged had ended by itself before."""
    return child in found.born and child not in found.told and child not in found.buried


def what_is_called_back_is_new(found: Evidence) -> Iterator[str]:
    """A child and a question have one id until a person calls them back, and then another one."""
    ids: dict[tuple[str, int], str] = {}
    for event in found.log:
        body = event.body
        if isinstance(body, e.ChildStarted | e.InteractionRequested):
            mine = body.child if isinstance(body, e.ChildStarted) else body.question_id
            effect = (old_name(body.leaf), times_redone(found.log[: event.seq], body.leaf))
            if ids.setdefault(effect, mine) != mine:
                yield f"event {event.seq}: {body.leaf} was {ids[effect]}, and now is {mine}"
    by_id: dict[str, tuple[str, int]] = {}
    for effect, mine in ids.items():
        if by_id.setdefault(mine, effect) != effect:
            yield f"{effect[0]} was called back, and is {mine} still"


def one_request_goes_back_once(found: Evidence) -> Iterator[str]:
    """Asked again under the same dedupe id, because the answer was lost, it is the same request."""
    made: dict[str, int] = {}
    for event in found.log:
        if isinstance(event.body, e.JumpRequested):
            by = event.body.by or ""
            made[by] = made.get(by, 0) + 1
            if made[by] > found.backs.get(by, 0):
                yield f"event {event.seq}: {by} made branch {made[by]}, and asked {found.backs.get(by, 0)} times"


def branches_keep_what_stands(found: Evidence) -> Iterator[str]:
    """What completed is run again only if it was undone, was asked for, or rests on what is run again; and all of that
    is run again. Of specs, whose graph says what rests on what, this is not asked."""
    if found.program.op == "spec":
        return
    before: dict[str, Part] = {}
    asked: str | None = None
    for event, seen in walked(found.log):
        body = event.body
        if isinstance(body, e.JumpRequested):
            asked = old_name(body.to)
        elif isinstance(body, e.BranchCreated):
            if body.cause in ("jump", "retry", "recovery"):
                keep, cancel = found.keeps.get(body.branch), _cancel_left(found.log, event)
                yield from _wrong_branch(event, body, before, parts_of(seen), asked, keep, cancel)
            asked = None
        before = parts_of(seen) if _before_branch(found.log, event) else before


def _before_branch(log: list[e.Event], event: e.Event) -> bool:
    """Whether the next event is a branch: only then it matters what its parent showed."""
    return event.seq < len(log) and isinstance(log[event.seq].body, e.BranchCreated)


def _cancel_left(log: list[e.Event], branch: e.Event) -> int:
    """The first cancel request that a branch leaves behind with the end that met it. What began later was clean-up."""
    ends = [event.seq for event in log[: branch.seq] if isinstance(event.body, e.ENDINGS)]
    turns = [event.seq for event in log[: branch.seq - 1] if isinstance(event.body, e.BranchCreated)]
    if not ends or (turns and turns[-1] > ends[-1]):
        return branch.seq
    since = ends[-2] if len(ends) > 1 else 0
    asked = (each.seq for each in log[since : ends[-1]] if isinstance(each.body, e.CancelRequested))
    return next(asked, branch.seq)


def _wrong_branch(
    event: e.Event, branch: e.BranchCreated, before: dict[str, Part], after: dict[str, Part], asked: str | None,
    keep: bool | None, cancel: int,
) -> Iterator[str]:  # fmt: skip
    """`keep`: whether a person wanted answers to be kept; None: that is not known. `cancel`: what the branch left."""
    hidden = {leaf: part for leaf, part in before.items() if leaf not in after or after[leaf].begun != part.begun}
    undone = {leaf for leaf in before if f"{leaf}!compensation" in before}
    again = {leaf: part for leaf, part in hidden.items() if not leaf.endswith("!compensation")}
    horizon = min((_end(part) for part in again.values() if part.ended is not None), default=None)
    for leaf, part in again.items():
        stands = part.outcome == "completed" and leaf not in undone and leaf != asked
        others = [_end(other) for other in again.values() if other is not part and other.ended is not None]
        if stands and not any(end < part.begun.seq for end in others) and part.begun.seq < cancel:
            yield f"event {event.seq} hides {leaf}, which completed and rests on nothing that runs again"
        answer = isinstance(part.begun.body, e.InteractionRequested) and part.outcome == "completed"
        if keep and answer and leaf != asked and part.begun.seq < cancel:
            yield f"event {event.seq} hides the answer to {leaf}, which was to be kept"
    for leaf, part in after.items():
        answered = isinstance(part.begun.body, e.InteractionRequested) and keep is not False
        late = horizon is not None and part.begun.seq > horizon and part.begun.seq < event.seq
        if late and not answered and not leaf.endswith("!compensation"):
            yield f"event {event.seq} keeps {leaf}, which rests on what runs again"
        if cancel < part.begun.seq < event.seq and branch.cause in ("jump", "retry"):
            yield f"event {event.seq} keeps {leaf}, which cleaned up after a cancel that the branch leaves behind"
        fresh = branch.cutoff_seq < part.begun.seq < event.seq and branch.cause in ("jump", "retry")
        if fresh and part.outcome != "completed" and not leaf.endswith("!compensation"):
            yield f"event {event.seq} keeps {leaf}, which began after the cut and is {part.outcome}"
    if branch.cause in ("jump", "retry") and asked in after:
        yield f"event {event.seq} goes back to {asked}, which does not run again"


def _end(part: Part) -> int:
    return 0 if part.ended is None else part.ended.seq


FAMILIES: dict[str, Check] = {
    "children of ended runs are notified": children_of_ended_runs_are_notified,
    "what is called back is new": what_is_called_back_is_new,
    "one request goes back once": one_request_goes_back_once,
    "branches keep what stands": branches_keep_what_stands,
}
