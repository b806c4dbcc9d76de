"""Findings: what a diagnosis says about a run, one code of the catalogue each, with the evidence for it.

Invariant: a finding is a verdict of now and is never stored; what was done about one is in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

Scalar: TypeAlias = "str | int | float | bool | None"
Evidence: TypeAlias = dict[str, str | int | float | bool | None]

Remedy: TypeAlias = Literal[
    "none",  # nothing is wrong, or nothing may be done
    "report",  # a person or another process must act
    "branch",  # continue from a sound place, on a new branch
    "requeue",  # a new or renewed task, due now
    "release",  # take the task from its dead holder
    "retry",  # run the failed leaf again, on a new branch
    "compensate",  # let the run act on the failure: undo what is done, then fail
    "hold",  # pause it for a person
    "fail",  # end it as failed
    "bind",  # bind it to a version that is there
    "adopt",  # take a foreign run in, if that is wanted
    "quarantine",  # pause it as poison
    "rebuild",  # rewrite the document from the log
]
REMEDIES: tuple[str, ...] = get_args(Remedy)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was found. `trouble` False: it looks odd, and is healthy."""

    code: str
    trouble: bool
    # One line, for people.
    reason: str
    remedy: Remedy = "none"
    # Event numbers, ages and ids.
    evidence: Evidence = {}

    def text(self) -> str:
        """`A1: why`, as the audit has it."""
        return f"{self.code}: {self.reason}"


# Healthy by all signs, and yet worth a word: a person may know better.
NOTICES = frozenset({"F1", "H3", "W1"})


def first_notice(findings: Sequence[Finding]) -> Finding | None:
    """The first notice: worth a line, but no trouble."""
    return next((each for each in findings if not each.trouble and each.code in NOTICES), None)


def first_trouble(findings: list[Finding]) -> Finding | None:
    """What one pass of a recovery acts on: the first trouble about which something can be done by itself."""
    return next((each for each in findings if each.trouble and each.remedy not in ("none", "report")), None)
