"""Programs: random workflows as data. A program is the input of a run; `workflows` interprets it.

Invariant: a program's result does not depend on timing. A race returns the same value for every winner, but takes
different ways. So `expected` can tell the result without running anything. What depends on time or chance goes into the
arguments of steps, where a replay compares it.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

import msgspec

# The steps' own number of retries: a step that fails more often has failed for good.
RETRIES = 2
# What the last release calls otherwise.
RENAMED_STEPS = {"work": "labour"}

_PARTS = (
    *("step", "step", "step", "sync", "slow", "derive", "sleep", "race", "ask", "signal", "signal_or", "hurry"),
    *("book", "child", "spawn", "errand"),
)
_FORMS = ("seq", "seq", "gather", "group", "completed", "first", "rest", "cleanup")
_SYNC_PARTS = ("step", "sync", "sync", "derive", "sleep", "ask", "signal", "signal_or", "book", "child", "errand")
_SYNC_FORMS = ("seq", "seq", "both")
_ALL_FORMS = frozenset((*_FORMS, *_SYNC_FORMS, "pack"))


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a program. What the numbers mean depends on `op`."""

    op: str
    id: str
    kids: tuple[Node, ...] = ()
    takes_s: float = 0.0
    limit_s: float = 0.0
    fails: int = 0
    catch: bool = True
    name: str = ""
    answer: str = ""
    # Of a whole program: how often it continues as a new run before it gives its result.
    again: int = 0


class Fails(Exception):
    """The program ends in failure."""


class Declines(Fails):
    """Its own code cancels it."""


def declined_by(id: str) -> str:
    """The reason that the code of such a part gives."""
    return f"{id} declines"


def make_program(rng: Random, *, is_async: bool, size: int, depth: int = 0) -> Node:
    """A program of about that many parts. Those of children are smaller, and have no children."""
    maker = _Maker(rng, is_async=is_async, size=size, depth=depth)
    kids = []
    while maker.left > 0:
        kids.append(maker.part(0))
    if rng.random() < 0.12:
        # One that fails at its end, with something to undo.
        kids.insert(rng.randint(0, len(kids)), maker.made("book"))
        kids.append(Node("step", "last", fails=RETRIES + 1, catch=False))
    return Node("seq", "main", tuple(kids), again=rng.choice((0, 0, 0, 0, 0, 0, 1, 2)))


class _Maker:
    def __init__(self, rng: Random, *, is_async: bool, size: int, depth: int) -> None:
        self._rng = rng
        self._depth = depth
        self._forms = _FORMS if is_async else _SYNC_FORMS
        self._parts = _PARTS if is_async else _SYNC_PARTS
        self._made = 0
        self.left = size

    def part(self, depth: int) -> Node:
        if depth < 2 and self.left > 2 and self._rng.random() < 0.35:
            return self._form(depth)
        op = self._rng.choice(self._parts)
        return self._leaf("step" if op in ("child", "spawn", "errand") and self._depth else op)

    def made(self, op: str) -> Node:
        return self._leaf(op)

    def _form(self, depth: int) -> Node:
        op = self._rng.choice(self._forms)
        name = self._name()
        if op == "both":
            return Node(op, name, tuple(self._leaf("step") for _ in range(self._rng.randint(2, 3))))
        kids = tuple(self.part(depth + 1) for _ in range(1 if op == "cleanup" else self._rng.randint(2, 3)))
        return Node(op, name, kids)

    def _leaf(self, op: str) -> Node:
        rng, name = self._rng, self._name()
        self.left -= 1
        match op:
            case "step" | "sync":
                fails = rng.choice((0, 0, 0, 1, 2, RETRIES + 1))
                takes = rng.choice((0.0, 0.0, 0.05, 0.5, 3.0, 8.0))
                return Node(op, name, takes_s=takes, fails=fails, catch=rng.random() < 0.9)
            case "child" | "spawn":
                is_async = rng.random() < 0.5
                program = make_program(rng, is_async=is_async, size=rng.randint(1, 3), depth=self._depth + 1)
                return Node(
                    op, name, (program,), name="sim_async" if is_async else "sim_sync", catch=rng.random() < 0.8
                )
            case "slow":
                return Node(op, name, takes_s=rng.choice((0.1, 3.0)), fails=rng.choice((0, 1)))
            case "errand":
                return Node(op, name, takes_s=rng.choice((0.0, 0.5, 5.0)))
            case "sleep":
                return Node(op, name, takes_s=rng.choice((0.0, 0.1, 1.0, 5.0, 15.0)), name=rng.choice(("buoy", "")))
            case "race":
                takes = rng.choice((0.2, 2.0, 6.0))
                return Node(op, name, takes_s=takes, limit_s=takes + rng.choice((-0.1, 1.0, 3.0)))
            case "ask":
                answer = rng.choice(("red", "green", "any text"))
                return Node(op, name, answer=answer)
            case "signal":
                return Node(op, name, name=rng.choice(("shared", f"to-{name}")))
            case "signal_or":
                return Node(op, name, limit_s=rng.choice((0.5, 4.0, 12.0)), name=f"to-{name}")
            case "hurry":
                return Node(op, name, takes_s=rng.choice((0.0, 0.5, 2.0)), limit_s=rng.choice((0.3, 1.0, 3.0)))
        return Node(op, name)

    def _name(self) -> str:
        self._made += 1
        return f"n{self._made}"


def expected(node: Node) -> Any:
    """What a program gives when nothing goes wrong, in the form in which it is stored. Raises `Fails`."""
    match node.op:
        case "spec":
            return _graph(node)
        case "step" | "sync":
            if node.fails > RETRIES:
                if not node.catch:
                    raise Fails(node.id)
                return f"{node.id} failed"
            return node.id
        case "brittle":
            if not node.catch:
                raise Fails(node.id)
            return f"{node.id} failed"
        case "decline":
            raise Declines(node.id)
        case "child":
            return _child(node)
        case "ask":
            return node.answer
        case "signal":
            return node.name
        case "race":
            return "slept" if node.takes_s < node.limit_s else "late"
        case "completed" | "rest":
            return sorted((expected(kid) for kid in node.kids), key=str)
        case "first":
            # For every winner: a part that fails, and is not caught, may come too late to matter.
            return node.id
        case "cleanup" if node.fails > RETRIES:
            raise Fails(node.id)
        case "seq" | "gather" | "group" | "both" | "pack" | "cleanup":
            return [expected(kid) for kid in node.kids]
    return node.id


def _graph(node: Node) -> Any:
    """A spec fails if one of its steps does; the others are done all the same."""
    if any(part.op == "call" and part.fails > RETRIES for part in parts(node)):
        raise Fails(node.id)
    plain = [kid for kid in node.kids if kid.op != "modules"]
    return {kid.id: kid.answer if kid.op == "ask" else kid.id for kid in plain}


def _child(node: Node) -> Any:
    try:
        return expected(node.kids[0])
    except Fails:
        if not node.catch:
            raise Fails(node.id) from None  # its parent fails also if its own code cancelled it
        return f"{node.id} failed"


def without(node: Node, dropped: Collection[str], run_id: str) -> Node:
    """The program without these parts of it, named `run/part`."""
    if node.op in ("child", "spawn"):
        return node
    kids = (without(kid, dropped, run_id) for kid in node.kids if f"{run_id}/{kid.id}" not in dropped)
    left = tuple(kid for kid in kids if kid.kids or kid.op not in _ALL_FORMS)
    return msgspec.structs.replace(node, kids=left, again=0 if f"{run_id}/again" in dropped else node.again)


def root_of(run_id: str) -> str:
    """The run that was started by a person: the ids of children begin with it."""
    return run_id.partition(".")[0]


def next_of(program: Node) -> Node:
    """What a program continues as."""
    return msgspec.structs.replace(program, again=program.again - 1)


def parts(node: Node) -> list[Node]:
    """The node and all below it that belongs to the same run."""
    below = () if node.op in ("child", "spawn") else node.kids
    return [node, *(part for kid in below for part in parts(kid))]
