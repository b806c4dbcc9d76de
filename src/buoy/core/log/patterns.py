"""Patterns: regular expressions of JSON Schema, matched in bounded work.

Python's own matcher backtracks: `^(a+)+$` takes hours for forty characters, and holds the whole process. Here a pattern
is a list of instructions, and all ways through it advance together, one character at a time (Thompson's simulation).
Invariants: the work is at most the length of the text times the size of the pattern, and is paid out of a `Budget`; the
verdict is the same on every machine, since no clock is involved. Absent on purpose: groups, since only a verdict is
wanted; back-references, atomic groups and possessive repeats, which no bounded matcher has.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import msgspec

from buoy.core.limits import FORM_DEPTH_MAX, PATTERN_SIZE_MAX
from buoy.errors import BadInput

# Python's parser of patterns; its result is a tree, and nothing is matched by it.
_parser: Any = importlib.import_module("re._parser")
_INFINITE: int = _parser.MAXREPEAT
Test = Callable[[str], bool]
# Extra cost of a position that is visited for the first time.
_CLOSURE_STEPS = 5


class Budget:
    """How much work a check may still take."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self._depth = 0

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Work inside of other work."""
        if self._depth >= FORM_DEPTH_MAX:
            raise BadInput(
                f"the answer cannot be judged: it or its schema is nested more than {FORM_DEPTH_MAX} levels deep; no "
                "reference may lead back to itself without a step into the answer"
            )
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def pay(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise BadInput("the answer takes too long to check against its schema; make it or its patterns simpler")


class PatternStep(msgspec.Struct):
    """One instruction: a test of a character, of a place, a fork, or (with none of them) the end."""

    test: Test | None = None
    at: str | None = None
    forks: tuple[int, ...] = ()
    look: Pattern | None = None
    wanted: bool = True
    behind: int = 0


class Pattern(msgspec.Struct):
    """A compiled pattern."""

    steps: list[PatternStep]
    looks: bool = False

    def search(self, text: str, budget: Budget) -> bool:
        """Whether some part of the text matches."""
        return self._run(text, 0, budget, everywhere=True)

    def _run(self, text: str, begin: int, budget: Budget, *, everywhere: bool) -> bool:
        # What comes next follows from where the pattern stands and the characters beside it, unless it looks around.
        known: dict[tuple[frozenset[int], str, str, bool], frozenset[int] | None] = {}
        again = frozenset((0,)) if everywhere else frozenset[int]()
        reached, before, size = frozenset((0,)), text[begin - 1 : begin] if begin else "", len(text)
        for place in range(begin, size + 1):
            after = text[place] if place < size else ""
            here = (reached, before, after, place + 1 == size)
            if self.looks or here not in known:
                known[here] = self._next(reached, text, place, budget)
            else:
                budget.pay()
            found = known[here]
            if found is None:
                return True
            reached, before = found | again if everywhere else found, after
            if not reached:
                return False
        return False

    def _next(self, reached: frozenset[int], text: str, place: int, budget: Budget) -> frozenset[int] | None:
        """Where the pattern stands after the next character. None: it has matched."""
        tests = self._closure(reached, text, place, budget)
        if tests is None or place == len(text):
            return None if tests is None else frozenset()
        char, steps = text[place], self.steps
        return frozenset(each + 1 for each in tests if (test := steps[each].test) is not None and test(char))

    def _closure(self, reached: Iterable[int], text: str, place: int, budget: Budget) -> list[int] | None:
        """The tests that come next, wherever the pattern stands. None: it has matched."""
        stack, seen, tests = list(reached), set[int](), list[int]()
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            budget.pay(_CLOSURE_STEPS)
            step = self.steps[number]
            if step.test is not None:
                tests.append(number)
            elif step.forks:
                stack.extend(step.forks)
            elif step.at is None and step.look is None:
                return None
            elif self._holds(step, text, place, budget):
                stack.append(number + 1)
        return tests

    def _holds(self, step: PatternStep, text: str, place: int, budget: Budget) -> bool:
        if step.look is None:
            return _at(str(step.at), text, place)
        begin = place - step.behind
        found = begin >= 0 and step.look._run(text, begin, budget, everywhere=False)
        return found is step.wanted


def _at(where: str, text: str, place: int) -> bool:
    before, after = text[place - 1 : place] if place else "", text[place : place + 1]
    match where:
        case "AT_BEGINNING_STRING" | "AT_BEGINNING":
            return place == 0
        case "AT_BEGINNING_LINE":
            return before in ("", "\n")
        case "AT_END_STRING":
            return not after
        case "AT_END":
            return not after or (after == "\n" and place + 1 == len(text))
        case "AT_END_LINE":
            return after in ("", "\n")
        case _:
            narrow = where.endswith("_ASCII")
            words = [_is_word(char) and not (narrow and not char.isascii()) for char in (before, after)]
            return (words[0] != words[1]) is where.startswith("AT_BOUNDARY")


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


@lru_cache(maxsize=256)
def pattern_of(text: str) -> Pattern:
    """The compiled pattern. Refuses one that is invalid, or cannot be matched in bounded work."""
    try:
        tree = _parser.parse(text)
        builder = _Builder(text)
        builder.add(tree, tree.state.flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(f"pattern {text[:60]!r} is no regular expression: {error}") from error
    return builder.pattern()


class _Builder:
    """Makes instructions out of a tree."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.steps: list[PatternStep] = []

    def pattern(self) -> Pattern:
        return Pattern([*self.steps, PatternStep()], looks=any(each.look is not None for each in self.steps))

    def add(self, tree: Any, flags: int) -> None:
        for op, value in tree:
            self._add_one(str(op), value, flags)

    def _add_one(self, op: str, value: Any, flags: int) -> None:
        match op:
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                self._push(PatternStep(test=_test(op, value, flags)))
            case "AT":
                where = str(value)
                lines = flags & re.MULTILINE and where in ("AT_BEGINNING", "AT_END")
                ascii_word = flags & re.ASCII and where in ("AT_BOUNDARY", "AT_NON_BOUNDARY")
                self._push(PatternStep(at=f"{where}_LINE" if lines else f"{where}_ASCII" if ascii_word else where))
            case "SUBPATTERN":
                _, added, removed, inner = value
                self.add(inner, (flags | added) & ~removed)
            case "BRANCH":
                self._branch(value[1], flags)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = value
                self._repeat(least, most, inner, flags)
            case "ASSERT" | "ASSERT_NOT":
                direction, inner = value
                self._look(direction, inner, flags, wanted=op == "ASSERT")
            case _:
                name = op.lower().replace("_", " ")
                raise BadInput(f"pattern {self._text[:60]!r} has a {name}, which takes unbounded time to match")

    def _look(self, direction: int, inner: Any, flags: int, *, wanted: bool) -> None:
        least, most = inner.getwidth()
        if direction < 0 and least != most:
            raise BadInput(f"pattern {self._text[:60]!r} is no regular expression: what it looks back at has no length")
        builder = _Builder(self._text)
        builder.add(inner, flags)
        self._push(PatternStep(look=builder.pattern(), wanted=wanted, behind=least if direction < 0 else 0))

    def _push(self, step: PatternStep) -> PatternStep:
        if len(self.steps) >= PATTERN_SIZE_MAX:
            raise BadInput(
                f"pattern {self._text[:60]!r} is too large: its repeats make over {PATTERN_SIZE_MAX:,} parts"
            )
        self.steps.append(step)
        return step

    def _branch(self, ways: list[Any], flags: int) -> None:
        fork = self._push(PatternStep())
        begins, ends = [], []
        for way in ways:
            begins.append(len(self.steps))
            self.add(way, flags)
            ends.append(self._push(PatternStep()))
        fork.forks = tuple(begins)
        for end in ends:
            end.forks = (len(self.steps),)

    def _repeat(self, least: int, most: int, inner: Any, flags: int) -> None:
        for _ in range(least):
            self.add(inner, flags)
            if not inner.getwidth()[1]:
                return  # nothing, however often, is nothing
        if most == _INFINITE:
            begin = len(self.steps)
            fork = self._push(PatternStep())
            self.add(inner, flags)
            self._push(PatternStep(forks=(begin,)))
            fork.forks = (begin + 1, len(self.steps))
            return
        forks = []
        for _ in range(most - least):
            forks.append((len(self.steps), self._push(PatternStep())))
            self.add(inner, flags)
        for place, fork in forks:
            fork.forks = (place + 1, len(self.steps))


def _test(op: str, value: Any, flags: int) -> Test:
    """The test of one character."""
    if op == "ANY":
        return (lambda char: True) if flags & re.DOTALL else (lambda char: char != "\n")
    items = [(op.removeprefix("NOT_"), value)] if op != "IN" else [(str(kind), inner) for kind, inner in value]
    negated = op == "NOT_LITERAL" or items[0][0] == "NEGATE"
    tests = [_item(kind, inner, flags) for kind, inner in items if kind != "NEGATE"]
    if not flags & re.IGNORECASE:
        return lambda char: any(test(char) for test in tests) is not negated
    return lambda char: any(test(one) for one in {char, char.lower(), char.upper()} for test in tests) is not negated


def _item(kind: str, value: Any, flags: int) -> Test:
    if kind == "LITERAL":
        literal = chr(value)
        return lambda char: char == literal
    if kind == "RANGE":
        first, last = map(chr, value)
        return lambda char: first <= char <= last
    name = str(value)
    known: dict[str, Test] = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": _is_word}
    test, wanted = known[name.rpartition("_")[2]], "_NOT_" not in name
    if flags & re.ASCII:
        return lambda char: (char.isascii() and test(char)) is wanted
    return lambda char: test(char) is wanted
