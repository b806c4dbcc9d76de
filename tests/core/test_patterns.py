"""Patterns: the same verdicts as Python's own matcher, in bounded work."""

from __future__ import annotations

import re
from random import Random

import pytest

from buoy.core.limits import FORM_STEPS_MAX
from buoy.core.log.patterns import Budget, pattern_of
from buoy.errors import BadInput

ATOMS = [
    "a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\s", "(?:ab|b)", "(a|)", "(?=a)", "(?!b)", "(?<=a)", "(?<!ab)",
    "^", "$", r"\b", r"\B", "(?i:A)", "[a-c]", "\\n",
]  # fmt: skip
REPEATS = ["", "", "", "*", "+", "?", "*?", "{2}", "{0,2}", "{1,}", "{2,3}?"]
TEXTS = "abAB1 \nñ_"


def search(pattern: str, text: str, steps: int = FORM_STEPS_MAX) -> bool:
    return pattern_of(pattern).search(text, Budget(steps))


def a_pattern(random: Random, depth: int = 2) -> str:
    parts = []
    for _ in range(random.randint(1, 4)):
        atom = random.choice(ATOMS)
        if depth and random.random() < 0.3:
            atom = f"({a_pattern(random, depth - 1)}|{a_pattern(random, depth - 1)})"
        bare = atom in ("^", "$", r"\b", r"\B") or atom.startswith(("(?=", "(?!", "(?<"))
        parts.append(atom + ("" if bare else random.choice(REPEATS)))
    return "".join(parts)


def test_verdicts_are_those_of_the_language() -> None:
    random = Random(7)
    for _ in range(1_500):
        flags = random.choice(["", "", "(?i)", "(?s)", "(?m)", "(?a)"])
        pattern = flags + a_pattern(random)
        text = "".join(random.choices(TEXTS, k=random.randint(1, 7)))
        assert search(pattern, text) is (re.search(pattern, text) is not None), (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(a*)*b", "^(?:a?){40}a{40}$", "(x+x+)+y", "^a*a*a*a*a*$"]
)
def test_patterns_that_keep_other_matchers_busy_for_ever_are_matched_at_once(pattern: str) -> None:
    assert search(pattern, "a" * 40 + "!") is False
    assert search(pattern, "a" * 60) is (pattern not in ("(a*)*b", "(x+x+)+y"))


def test_work_is_bounded() -> None:
    with pytest.raises(BadInput, match="takes too long to check"):
        search("(?=.*x)[a-z]", "a" * 100_000)
    with pytest.raises(BadInput, match="is too large"):
        pattern_of("(a{1000}){1000}")


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?P<x>a)(?P=x)", "(a)(?(1)b|c)"])
def test_what_no_bounded_matcher_has_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="which takes unbounded time to match"):
        pattern_of(pattern)


@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}", "(?<=a*)b", "(" * 5_000 + ")" * 5_000])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="is no regular expression"):
        pattern_of(pattern)
