"""Renames: a log read by the names that its steps have now.

A `version_bound` event may say that steps were renamed. Every event before it is then read as if its leaf had had the
new name from the start, on every branch; what was stored stays as it is.
Invariants: scopes and occurrences stay, and two leaves never become one. A leaf that began keeps the name under which
its effects are known to others (`Names.identity`): idempotency keys, question ids and child runs outlive a rename. A
new leaf under an abandoned name is another leaf, so its effects get an identity of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from buoy.core.ids import LeafId, check_name
from buoy.core.log import events as e
from buoy.errors import BadInput

# The scope of concurrent parts of code; those of specs are names.
_CODE_SCOPE = re.compile(r"[0-9.]+\Z")
# Leaves that have no name of their own.
_NAMELESS = frozenset({"ask", "timer"})
RENAMES_MAX = 1_000


class Names(msgspec.Struct, frozen=True):
    """Under which names the effects of renamed leaves are known, and how often a name was given up."""

    identities: dict[LeafId, LeafId] = {}
    given_up: dict[LeafId, int] = {}

    def identity(self, leaf: LeafId) -> LeafId:
        """The name that goes into keys and ids."""
        known = self.identities.get(leaf)
        if known is not None:
            return known
        times = self.given_up.get(leaf, 0)
        return LeafId(f"{leaf}~{times}") if times else leaf

    def now(self, identity: LeafId) -> LeafId:
        """The leaf that is known so to others."""
        for leaf, known in self.identities.items():
            if known == identity:
                return leaf
        bare, mark, times = identity.rpartition("~")
        return LeafId(bare) if mark and times.isdecimal() else identity


NO_RENAMES = Names()


def named_now(events: Sequence[e.Event]) -> Sequence[e.Event]:
    """The log by today's names; reading the result once more changes nothing."""
    return read_names(events)[0]


def read_names(events: Sequence[e.Event]) -> tuple[Sequence[e.Event], Names]:
    """The log by today's names, and what became of the old ones."""
    bound = [event for event in events if type(event.body) is e.VersionBound and event.body.renamed]
    if not bound:
        return events, NO_RENAMES
    names, known = NO_RENAMES, list[e.Event]()
    place = 0
    for event in bound:
        body = event.body
        assert isinstance(body, e.VersionBound)
        end = place + next(at for at, each in enumerate(events[place:]) if each is event)
        known.extend(events[place:end])
        names = _rename(names, leaves_of(known), body.renamed)
        known = [_renamed(each, body.renamed) for each in known]
        known.append(replace(event, body=replace(body, renamed={})))
        place = end + 1
    known.extend(events[place:])
    return known, names


def leaves_of(events: Iterable[e.Event]) -> list[LeafId]:
    """Every leaf that a log names, in the order in which they began."""
    return list(dict.fromkeys(leaf for event in events if (leaf := e.leaf_of(event.body)) is not None))


def new_leaf(leaf: LeafId, renamed: Mapping[str, str]) -> LeafId:
    """What a leaf is called after a rename. The most specific name wins, and only one."""
    path, mark, occurrence = leaf.rpartition("#")
    found = path
    while found:
        if found in renamed:
            return LeafId(f"{renamed[found]}{path[len(found) :]}{mark}{occurrence}")
        found = found.rpartition("/")[0]
    scope, _, name = path.rpartition("/")
    if name in renamed and _CODE_SCOPE.match(scope):
        return LeafId(f"{scope}/{renamed[name]}{mark}{occurrence}")
    return leaf


def check_renames(events: Sequence[e.Event], renamed: Mapping[str, str]) -> dict[LeafId, LeafId]:
    """Which leaves a rename would touch, by their present names; a refusal if it makes no sense for this log."""
    check_pairs(renamed)
    leaves = leaves_of(named_now(events))
    new_ids = {leaf: new_leaf(leaf, renamed) for leaf in leaves}
    touched = {leaf: new for leaf, new in new_ids.items() if leaf != new}
    for old in renamed:
        if not _found(leaves, old):
            known = ", ".join(sorted({leaf.rpartition("#")[0] for leaf in leaves})[:20]) or "none"
            raise BadInput(f"the run has no step {old!r} that began; it has: {known}")
    back: dict[LeafId, LeafId] = {}
    for leaf, new in new_ids.items():
        other = back.setdefault(new, leaf)
        if other != leaf:
            raise BadInput(f"{other} and {leaf} would both be {new}; two steps cannot become one")
    return touched


def occurs(events: Sequence[e.Event], name: str) -> bool:
    """Whether a rename of that name would touch anything in this log."""
    return _found(leaves_of(named_now(events)), name)


def _found(leaves: Sequence[LeafId], name: str) -> bool:
    return any(new_leaf(leaf, {name: ""}) != leaf for leaf in leaves)


def check_pairs(renamed: Mapping[str, str]) -> None:
    """Refuses what could not be a rename in any log."""
    if len(renamed) > RENAMES_MAX:
        raise BadInput(f"{len(renamed):,} renames are more than {RENAMES_MAX:,}")
    for old, new in renamed.items():
        _check_pair(old, new)


def _check_pair(old: str, new: str) -> None:
    if old == new:
        raise BadInput(f"{old!r} would keep its name")
    for text in (old, new):
        if text.rpartition("/")[2] in _NAMELESS:
            raise BadInput(f"{text!r} cannot be renamed: questions and timers have no name of their own")
    for part in new.split("/"):
        check_name(part, "step")
    if old.count("/") != new.count("/"):
        raise BadInput(f"{old!r} and {new!r} do not stand at the same depth")


def _rename(names: Names, leaves: Iterable[LeafId], renamed: Mapping[str, str]) -> Names:
    identities, given_up = dict(names.identities), dict(names.given_up)
    moved = [(leaf, new) for leaf in leaves if (new := new_leaf(leaf, renamed)) != leaf]
    for leaf, _ in moved:
        identities.pop(leaf, None)
        given_up[leaf] = given_up.get(leaf, 0) + 1
    for leaf, new in moved:
        identities[new] = names.identity(leaf)
    return Names(identities, given_up)


def _renamed(event: e.Event, renamed: Mapping[str, str]) -> e.Event:
    body = _new_body(event.body, renamed)
    return event if body is event.body else replace(event, body=body)


def _new_body(body: e.Body, renamed: Mapping[str, str]) -> e.Body:
    if isinstance(body, e.BranchCreated):
        kept, dropped = (tuple(new_leaf(leaf, renamed) for leaf in each) for each in (body.kept, body.dropped))
        return body if (kept, dropped) == (body.kept, body.dropped) else replace(body, kept=kept, dropped=dropped)
    if isinstance(body, e.JumpRequested):
        return replace(body, to=new_leaf(body.to, renamed))
    old = e.leaf_of(body)
    if old is None or (new := new_leaf(old, renamed)) == old:
        return body
    path = new.rpartition("#")[0]
    name = path.rpartition("/")[2]
    match body:
        case e.StepStarted():
            return replace(body, leaf=new, name=name)
        case e.ModuleStarted():
            return replace(body, leaf=new, step=path.partition("/")[0], module=name)
        case e.SignalWaited():
            return replace(body, leaf=new, name=name.removeprefix("signal:"))
    return replace(body, leaf=new)
