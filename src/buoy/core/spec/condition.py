"""Conditions of specs: `steps.check.result.rows > 0 and not parameters.dry`.

    condition := or-list; and, or, not, parentheses.
    comparison := value (== != < <= > >= in, not in) value.
    value := number | 'text' | "text" | true | false | null | {k} | a reference as in templates, without its braces

Invariants: a condition is parsed and then walked by this module alone, it can call nothing; values of different types
are never equal and cannot be ordered: that is an error, not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from buoy.core.limits import SPEC_EXPRESSION_CHARS_MAX
from buoy.core.log.questions import Json
from buoy.core.spec.problems import shown
from buoy.core.spec.template import Bound, Param, Ref, parse_ref
from buoy.errors import BadInput

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<op>==|!=|<=|>=|<|>|\(|\))"
    r"|(?P<param>\{[A-Za-z_]\w*\})|(?P<word>[A-Za-z_](?:[\w.-]|\{[A-Za-z_]\w*(?::0?\d{1,2}d?)?\})*))"
)
_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}
_DEPTH_MAX = 30


class Value(NamedTuple):
    value: Json


class Not(NamedTuple):
    inner: Node


class Both(NamedTuple):
    """`and`, `or`"""

    word: str
    left: Node
    right: Node


class Compare(NamedTuple):
    op: str
    left: Node
    right: Node


Node: TypeAlias = "Value | Param | Ref | Not | Both | Compare"


@lru_cache(maxsize=4096)
def parse_when(text: str) -> Node:
    """The condition that a text is, or a refusal that says where it stops making sense."""
    if len(text) > SPEC_EXPRESSION_CHARS_MAX:
        raise BadInput(f"a condition has at most {SPEC_EXPRESSION_CHARS_MAX} characters, this one has {len(text)}")
    return _Parser(text).whole()


class _Parser:
    """Recursive descent over the tokens; the deepest nesting is bounded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._place = 0
        self._depth = 0

    def whole(self) -> Node:
        found = self._either()
        if self._place < len(self._tokens):
            raise self._wrong("'and', 'or' or the end")
        return found

    def _either(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise BadInput(f"condition {self._text[:60]!r} is nested too deeply")
        found = self._all()
        while self._accept("or"):
            found = Both("or", found, self._all())
        self._depth -= 1
        return found

    def _all(self) -> Node:
        found = self._one()
        while self._accept("and"):
            found = Both("and", found, self._one())
        return found

    def _one(self) -> Node:
        negations = 0
        while self._accept("not"):
            negations += 1
        found = self._comparison()
        return Not(found) if negations % 2 else found

    def _comparison(self) -> Node:
        left = self._value()
        kind, text = self._peek()
        if kind == "op" and text not in "()":
            self._place += 1
            return Compare(text, left, self._value())
        if self._accept("in"):
            return Compare("in", left, self._value())
        if (kind, text) == ("word", "not"):
            self._place += 1
            if not self._accept("in"):
                raise self._wrong("'in' after 'not'")
            return Not(Compare("in", left, self._value()))
        return left

    def _value(self) -> Node:
        kind, text = self._peek()
        self._place += 1
        match kind:
            case "number":
                return Value(float(text) if any(each in text for each in ".eE") else int(text))
            case "text":
                return Value(text[1:-1])
            case "param":
                return Param(text[1:-1])
            case "op" if text == "(":
                found = self._either()
                if self._peek() != ("op", ")"):
                    raise self._wrong("')'")
                self._place += 1
                return found
            case "word" if text in _WORDS:
                return Value(_WORDS[text])
            case "word" if text not in ("and", "or", "not", "in"):
                return parse_ref(text)
            case _:
                self._place -= 1
                raise self._wrong("a value: a number, 'text', true, false, null or steps.ID")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "the end")

    def _accept(self, word: str) -> bool:
        if self._peek() == ("word", word):
            self._place += 1
            return True
        return False

    def _wrong(self, expected: str) -> BadInput:
        return BadInput(f"condition {self._text[:60]!r}: expected {expected}, found {self._peek()[1]!r}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            found_there = text[place:].strip()[0]
            hint = "; write '==' to compare" if found_there == "=" else ""
            raise BadInput(f"condition {text[:60]!r}: {found_there!r} has no meaning there{hint}")
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup]
        place = found.end()


def walk(node: Node) -> Iterator[Param | Ref]:
    """The parameters and references in a condition."""
    match node:
        case Param() | Ref():
            yield node
        case Not(inner):
            yield from walk(inner)
        case Both(_, left, right) | Compare(_, left, right):
            yield from walk(left)
            yield from walk(right)
        case Value():
            return


def holds(text: str, bound: Bound, lookup: Callable[[Ref], Json]) -> bool:
    """Whether the condition is true now."""
    return _truth(_evaluate(parse_when(text), bound, lookup), text)


def _evaluate(node: Node, bound: Bound, lookup: Callable[[Ref], Json]) -> Json:
    match node:
        case Value(value):
            return value
        case Param(name):
            return bound[name]
        case Ref():
            return lookup(node)
        case Not(inner):
            return not _truth(_evaluate(inner, bound, lookup), "not")
        case Both(word, left, right):
            first = _truth(_evaluate(left, bound, lookup), word)
            return first if first == (word == "or") else _truth(_evaluate(right, bound, lookup), word)
        case Compare(op, left, right):
            return _compare(op, _evaluate(left, bound, lookup), _evaluate(right, bound, lookup))


def _truth(value: Json, where: str) -> bool:
    """Only true, false and null count: a text 'no' that is true, or a 0 that is false, are surprises."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise BadInput(f"{where[:60]!r} wants true or false, found {shown(value)}; compare it with something")


def _compare(op: str, left: Json, right: Json) -> bool:
    if op in ("==", "!="):
        return (_kind(left) == _kind(right) and left == right) == (op == "==")
    if op == "in":
        if isinstance(right, str) and isinstance(left, str):
            return left in right
        if isinstance(right, list | dict):
            return left in right if not isinstance(left, list | dict) else left in list(right)
        raise BadInput(f"'in' wants a list, a map or a text on its right side, found {shown(right)}")
    if isinstance(left, str) and isinstance(right, str):
        return _ordered(op, (left > right) - (left < right))
    if _kind(left) == _kind(right) == "number":
        assert isinstance(left, int | float)
        assert isinstance(right, int | float)
        return _ordered(op, (left > right) - (left < right))
    raise BadInput(f"{shown(left)} {op} {shown(right)}: only two numbers or two texts can be ordered")


def _kind(value: Json) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def _ordered(op: str, sign: int) -> bool:
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op]
