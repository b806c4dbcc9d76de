"""Tally: what a sweep did and found, counted while it runs.

Invariant: every run that was looked at is counted once, under one word. A notice is about a healthy run.
"""

from __future__ import annotations

import msgspec

from buoy.errors import Problem
from buoy.recovery.recover import Recovery

_TROUBLES_KEPT = 100
_ACTIONS = {
    "none": "healthy",
    "resume": "resumed",
    "retry": "resumed",
    "compensate": "resumed",
    "restart": "restarted",
    "fail": "failed",
    "hold": "held",
    "quarantine": "held",
    "unknown": "unknown",
}


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep did, in runs."""

    scanned: int = 0
    healthy: int = 0
    restarted: int = 0
    resumed: int = 0
    failed: int = 0
    held: int = 0
    skipped: int = 0
    unknown: int = 0
    dead_runners: int = 0
    # One line for each run that still is in trouble, or could not be read; the first of them.
    troubles: tuple[str, ...] = ()
    # Of these, the lines that are about no run that was reported.
    apart: tuple[str, ...] = ()
    # One line for each healthy run with a notice, such as a step that takes long; the first of them.
    notices: tuple[str, ...] = ()
    # The limit was reached: there may be more.
    more: bool = False

    @property
    def moved(self) -> int:
        """Runs that can continue now."""
        return self.restarted + self.resumed


class Tally:
    """Counts while a sweep runs."""

    def __init__(self, limit: int | None) -> None:
        self._counts: dict[str, int] = {}
        self._limit = limit
        self.troubles: list[str] = []
        self.apart: list[str] = []
        self.notices: list[str] = []
        self.recovered = 0
        self.dead_runners = 0
        # What could not be read or done, as a number for the sweeper's own health.
        self.errors = 0

    def add(self, found: Recovery) -> None:
        word = _ACTIONS.get(found.action, "skipped")
        self.count(word)
        if word not in ("healthy", "skipped", "unknown"):
            self.recovered += 1
        # A run that was just recovered may well wait for a worker.
        left = found.error or (found.note if found.action == "report" else None)
        if left is not None and found.action != "lost":
            self._trouble(f"{found.run_id}: {left}")
        if found.action == "none" and found.note is not None and len(self.notices) < _TROUBLES_KEPT:
            self.notices.append(f"{found.run_id}: {found.note}")
        if word == "unknown":
            self.errors += 1

    def trouble(self, text: str, error: Problem) -> None:
        """Something that is about no run."""
        self.errors += 1
        if len(self.apart) < _TROUBLES_KEPT:
            self.apart.append(text)
        self._trouble(text)

    def _trouble(self, text: str) -> None:
        if len(self.troubles) < _TROUBLES_KEPT:
            self.troubles.append(text)

    def count(self, word: str, number: int = 1) -> None:
        self._counts[word] = self._counts.get(word, 0) + number
        self._counts["scanned"] = self._counts.get("scanned", 0) + number

    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and self.recovered >= self._limit

    def total(self) -> Swept:
        return Swept(
            **self._counts,
            dead_runners=self.dead_runners,
            troubles=tuple(self.troubles),
            apart=tuple(self.apart),
            notices=tuple(self.notices),
            more=self.full(),
        )
