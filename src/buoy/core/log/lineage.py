"""Lineage: which events of a run's log its current branch can see.

Invariants: events are only ever hidden by a cutoff or a dropped leaf, never removed; run-level events are never hidden;
a leaf whose compensation began is dropped by every new branch, whatever the branch says, since its effect was undone.
Absent on purpose: the store. Callers hand in the events that they read.
"""

from __future__ import annotations

from collections.abc import Sequence

from buoy.core.ids import ROOT_BRANCH, BranchId
from buoy.core.log.events import BranchCreated, CompensationStarted, Event, VersionBound, is_run_level, leaf_of
from buoy.core.log.renames import named_now
from buoy.errors import CorruptLog

# Events that may hide or rename earlier ones.
_REARRANGING = frozenset({BranchCreated, VersionBound})


def is_plain(events: Sequence[Event]) -> bool:
    """Whether the log is seen as it was written: no branch and no change of version is in it."""
    return not [event for event in events if type(event.body) in _REARRANGING]


def branches(events: Sequence[Event]) -> dict[BranchId, BranchCreated]:
    """All branches but the root, by id."""
    found: dict[BranchId, BranchCreated] = {}
    # Looked for in one go: most logs have none, and every replay of a long one asks.
    for created in [event.body for event in events if type(event.body) is BranchCreated]:
        found.setdefault(created.branch, created)
    return found


def current_branch(events: Sequence[Event]) -> BranchId:
    """The branch that was created last: the run continues there."""
    for event in reversed(events):
        if isinstance(event.body, BranchCreated):
            return event.body.branch
    return ROOT_BRANCH


def visible(events: Sequence[Event], branch: BranchId | None = None) -> list[Event]:
    """The events that `branch` (default: the current one) can see, in log order; run-level events always."""
    if is_plain(events):
        return list(events)
    events = named_now(events)
    known = branches(events)
    if not known:
        return list(events)
    chain = _chain(known, current_branch(events) if branch is None else branch)
    by_branch: dict[BranchId, list[Event]] = {}
    for event in events:
        if not is_run_level(event.body):
            by_branch.setdefault(event.branch, []).append(event)
    seen = list(by_branch.get(ROOT_BRANCH, ()))
    for created in chain:
        seen = _inherit(seen, created)
        seen.extend(by_branch.get(created.branch, ()))
    keep = {event.seq for event in seen}
    return [event for event in events if event.seq in keep or is_run_level(event.body)]


def hidden_at(events: Sequence[Event]) -> dict[int, int]:
    """The events that the current branch cannot see: the number of each, and of the `branch_created` that hid it."""
    events = named_now(events)
    hidden: dict[int, int] = {}
    branch, lineage = ROOT_BRANCH, list[Event]()
    for place, event in enumerate(events):
        created = event.body
        if isinstance(created, BranchCreated):
            left = lineage
            if created.parent != branch:
                lineage = [each for each in visible(events[:place], created.parent) if not is_run_level(each.body)]
            inherited = _inherit(lineage, created)
            for each in left:
                hidden.setdefault(each.seq, event.seq)
            for each in inherited:
                hidden.pop(each.seq, None)
            branch, lineage = created.branch, inherited
        elif event.branch == branch and not is_run_level(created):
            lineage.append(event)
    return hidden


def _inherit(parent: list[Event], created: BranchCreated) -> list[Event]:
    """What a new branch takes over of its parent's lineage."""
    undone = {event.body.leaf for event in parent if isinstance(event.body, CompensationStarted)}
    kept, dropped = set(created.kept), undone.union(created.dropped)
    out: list[Event] = []
    for event in parent:
        leaf = leaf_of(event.body)
        if leaf is None:
            # Ends belong to the branch on which they happened; only one within the cutoff is inherited.
            if event.seq <= created.cutoff_seq:
                out.append(event)
        elif leaf not in dropped and (event.seq <= created.cutoff_seq or leaf in kept):
            out.append(event)
    return out


def _chain(known: dict[BranchId, BranchCreated], branch: BranchId) -> list[BranchCreated]:
    """From the first branch after the root down to `branch`."""
    chain: list[BranchCreated] = []
    while branch != ROOT_BRANCH:
        created = known.get(branch)
        if created is None:
            raise CorruptLog(f"branch {branch} is referred to, but was never created")
        chain.append(created)
        if len(chain) > len(known):
            raise CorruptLog(f"branch {branch} is its own ancestor")
        branch = created.parent
    chain.reverse()
    return chain
