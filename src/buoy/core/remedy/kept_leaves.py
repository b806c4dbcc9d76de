"""Kept leaves: which leaves a recovery's branch keeps, and which run again.

Invariants: a completed leaf is dropped only if it was undone, or depends on one that runs again. Answers are kept
wherever a replay can place them. Waits (timers, signals, children, questions) stay open: no time-out restarts. A part
of a spec depends on another if the graph says so. A leaf of code depends on another if it began after that outcome.
Absent on purpose: where to cut (`core.remedy.plan`), and going back on a user's word (`core.remedy.rewind`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from buoy.core.ids import LeafId, leaf_scope
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import State
from buoy.core.log.transitions import compensation_leaf

_WAITS = ("timer", "signal", "child", "ask")
_SETTLED = ("completed", "cancelled")


class Split(msgspec.Struct, frozen=True):
    """`kept`: leaves with events after the cutoff that stay. `dropped`: hidden. `again`: executed or asked again."""

    kept: tuple[LeafId, ...]
    dropped: tuple[LeafId, ...]
    again: tuple[LeafId, ...]


def split(
    state: State,
    lineage: Sequence[e.Event],
    cutoff: int,
    again: Iterable[LeafId] = (),
    needs: Mapping[str, tuple[str, ...]] | None = None,
) -> Split:
    """What becomes of each leaf of a lineage that is cut there; `again`: what must be run again in any case."""
    leaves = [leaf for leaf in state.leaves.values() if leaf.kind != "compensation"]
    parts = [leaf for leaf in leaves if leaf.kind != "group"]
    last = _last_events(lineage)
    undone = {leaf.id for leaf in leaves if compensation_leaf(leaf.id) in state.leaves}
    first = set(again) | undone | {leaf.id for leaf in parts if _unsettled(leaf, cutoff)}
    dropped = _with_dependents(parts, first, needs)
    dropped |= _groups(leaves, dropped, cutoff)
    shown = [leaf for leaf in leaves if leaf.id in dropped]
    open_still = [leaf for leaf in parts if leaf.id not in dropped and leaf.phase == "open" and leaf.kind not in _WAITS]
    return Split(
        kept=tuple(leaf.id for leaf in leaves if leaf.id not in dropped and last.get(leaf.id, 0) > cutoff),
        dropped=tuple(leaf.id for leaf in shown),
        again=tuple(leaf.id for leaf in sorted([*shown, *open_still], key=lambda leaf: leaf.started_seq)),
    )


def _last_events(lineage: Sequence[e.Event]) -> dict[LeafId, int]:
    """The last event of each leaf."""
    found: dict[LeafId, int] = {}
    for event in lineage:
        leaf = e.leaf_of(event.body)
        if leaf is not None:
            found[leaf] = event.seq
    return found


def _unsettled(leaf: Leaf, cutoff: int) -> bool:
    """True if the cut leaves nothing to continue from: it began after the cut and has no lasting outcome."""
    if leaf.phase in _SETTLED:
        return False
    if leaf.phase == "failed":
        return leaf.ended_seq > cutoff
    return leaf.started_seq > cutoff and leaf.kind not in _WAITS and leaf.phase == "open"


def _with_dependents(parts: list[Leaf], first: set[LeafId], needs: Mapping[str, tuple[str, ...]] | None) -> set[LeafId]:
    """Those, and all that rest on an outcome of theirs. Dropping one more may make others rest on it."""
    dropped = set(first)
    while True:
        lost = [leaf for leaf in parts if leaf.id in dropped and leaf.ended_seq]
        more = _begun_after(parts, lost) if needs is None else _resting_on(parts, lost, needs)
        more |= _inside(parts, dropped)
        if more <= dropped:
            return dropped
        dropped |= more


def _begun_after(parts: list[Leaf], lost: list[Leaf]) -> set[LeafId]:
    """Leaves of code that began when one of those outcomes was known."""
    horizon = min((leaf.ended_seq for leaf in lost), default=None)
    if horizon is None:
        return set()
    # An answer stands, whatever it was asked after: a person is not asked twice.
    return {
        leaf.id
        for leaf in parts
        if leaf.started_seq > horizon and not (leaf.kind == "ask" and leaf.phase == "completed")
    }


def _inside(parts: list[Leaf], dropped: set[LeafId]) -> set[LeafId]:
    """The open leaves inside of an executing part: the part starts them again."""
    places = {each.rpartition("#")[0] for each in dropped}
    return {leaf.id for leaf in parts if not leaf.ended_seq and any(path in places for path in _paths(leaf.id))}


def _resting_on(parts: list[Leaf], lost: list[Leaf], needs: Mapping[str, tuple[str, ...]]) -> set[LeafId]:
    """Parts of a spec: those of later steps by the graph, and of the same step those that began later."""
    below = _descendants({_step(leaf.id) for leaf in lost}, needs)
    since: dict[str, int] = {}
    for leaf in lost:
        step = _step(leaf.id)
        since[step] = min(since.get(step, leaf.ended_seq), leaf.ended_seq)
    return {
        leaf.id
        for leaf in parts
        if _step(leaf.id) in below or (_step(leaf.id) in since and leaf.started_seq > since[_step(leaf.id)])
    }


def _step(leaf: LeafId) -> str:
    """The step of a spec that a leaf belongs to."""
    return leaf.rpartition("#")[0].partition("/")[0]


def _descendants(steps: set[str], needs: Mapping[str, tuple[str, ...]]) -> set[str]:
    after: dict[str, list[str]] = {}
    for step, needed in needs.items():
        for each in needed:
            after.setdefault(each, []).append(step)
    found: set[str] = set()
    stack = list(steps)
    while stack:
        for each in after.get(stack.pop(), ()):
            if each not in found:
                found.add(each)
                stack.append(each)
    return found


def _paths(leaf: LeafId) -> list[str]:
    """The places that a leaf is in: `gather` and `gather/review` for `gather/review/ask#1`."""
    names = leaf_scope(leaf).split("/")
    return ["/".join(names[: place + 1]) for place in range(len(names)) if names[place]]


def _groups(leaves: list[Leaf], dropped: set[LeafId], cutoff: int) -> set[LeafId]:
    """Groups have no work of their own: one that ended goes with any of its parts, an open one with all of them."""
    inside, lost = Counter[str](), Counter[str]()
    for leaf in leaves:
        if leaf.kind != "group":
            paths = _paths(leaf.id)
            inside.update(paths)
            if leaf.id in dropped:
                lost.update(paths)
    found: set[LeafId] = set()
    for group in leaves:
        if group.kind != "group":
            continue
        place = group.id.rpartition("#")[0]
        if group.ended_seq:
            hidden = lost[place] > 0 or (group.phase == "failed" and group.ended_seq > cutoff)
        else:
            hidden = group.started_seq > cutoff and lost[place] == inside[place]
        if hidden:
            found.add(group.id)
    return found
