"""Reports: what a crash test found, as data and as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from buoy.core.durations import in_words

Kind: TypeAlias = Literal[
    "outcome", "lost", "repeated", "executed_again", "nondeterminism", "clock", "random", "not_json", "not_allowed",
    "not_awaited", "blocking", "swallowed",
]  # fmt: skip
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]

TITLES: dict[Kind, str] = {
    "outcome": "The outcome depends on the crash",
    "lost": "The run does not come to its end after a crash",
    "repeated": "A step acts more than once",
    "executed_again": "A completed step was executed again",
    "nondeterminism": "The code does not repeat itself",
    "clock": "Workflow code looks at the clock",
    "random": "Workflow code depends on randomness",
    "not_json": "A result is not JSON",
    "not_allowed": "Workflow code does what it may not",
    "not_awaited": "A call is never awaited",
    "blocking": "Workflow code blocks",
    "swallowed": "Cancellation is swallowed",
}


class RunEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run ended: what a caller of the workflow sees.

    `cause`: the type of its error, or the reason of its pause; `error` says it in words. `detail`: that of its pause.
    """

    status: str
    result: Any = None
    error: str | None = None
    cause: str | None = None
    detail: str | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.status}: {self.error}"
        if self.status != "completed":
            return self.status
        return f"{self.status} with {msgspec.json.encode(self.result).decode()}"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong, what it means, and what to do about it. `points`: where it was seen."""

    kind: Kind
    what: str
    advice: str
    step: str | None = None
    points: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return TITLES[self.kind]


class Repeat(msgspec.Struct, frozen=True):
    """A step that a crash made run more than once, always under one key."""

    step: str
    leaf: str
    executions: int
    key: str
    looks_at_key: bool
    points: tuple[str, ...]


class Crash(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scenario.

    `phase`: the process died before or after the write; or after it and again in its recovery (`twice`). With `cancel`,
    the run was asked to cancel after it; with `undo`, the process also died in the first compensation.
    """

    number: int
    phase: str
    what: str
    ok: bool
    ended: str
    recovery_ms: float | None = None
    real_ms: float = 0.0

    @property
    def label(self) -> str:
        if self.phase == "cancel":
            return f"cancel after write {self.number} ({self.what})"
        if self.phase == "undo":
            return f"cancel after write {self.number} ({self.what}), and a crash in the first compensation"
        if self.phase == "twice":
            return f"after write {self.number} ({self.what}), and once more as soon as it was taken over"
        return f"{self.phase} write {self.number} ({self.what})"


class Report(msgspec.Struct, frozen=True):
    """What a crash test has shown."""

    workflow: str
    store: str
    seed: int
    real: bool
    reference: RunEnd
    writes: int
    # How much time passed for the workflow, and for us.
    virtual_s: float
    real_s: float
    crashes: tuple[Crash, ...]
    findings: tuple[Finding, ...]
    repeats: tuple[Repeat, ...]
    # Points that there are and that were not tried.
    left_out: int = 0
    # What of the script nothing called for, without a crash; stubs and patterns that no step bore out, in any run.
    unused: tuple[str, ...] = ()
    # What could not be tried, and why.
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    def recovery_ms(self) -> tuple[float, float] | None:
        """The median and the longest time from the start of the second process until it had taken the run over."""
        times = sorted(each.recovery_ms for each in self.crashes if each.recovery_ms is not None)
        return (times[len(times) // 2], times[-1]) if times else None

    def summary(self) -> str:
        cancels = sum(each.phase in ("cancel", "undo") for each in self.crashes)
        runs = sum(each.phase != "cancel" for each in self.crashes)
        tried = sum(each.phase in ("before", "after") for each in self.crashes)
        points = f"{tried} of {tried + self.left_out}" if self.left_out else str(tried)
        kills = runs + sum(each.phase == "twice" for each in self.crashes)
        how = "killed" if self.real else "crashed"
        parts = [f"{self.workflow}: {self.writes} writes", f"{points} points before and after them"]
        parts.append(f"{how} {kills} times in {runs} runs")
        if cancels:
            parts.append(f"cancelled {cancels} times")
        parts.append(f"{in_words(self.virtual_s)} of its time in {self.real_s:.1f} s")
        took = self.recovery_ms()
        if took is not None:
            parts.append(f"recovery took {took[0]:.1f} ms (median), {took[1]:.1f} ms (longest)")
        return ", ".join(parts)

    def remarks(self) -> Iterator[str]:
        """What is no finding, and probably not what was meant."""
        if self.reference.status == "failed":
            yield f"without a crash it already fails: {self.reference.error}"
        yield from self.unused
        yield from self.notes

    def verdict(self) -> str:
        """In one sentence, if nothing was found."""
        same = "the same failure" if self.reference.status == "failed" else "the same outcome"
        return f"every crash was recovered from, with {same}"

    def lines(self) -> Iterator[str]:
        """All of it as plain text, for logs and for failed tests."""
        yield self.summary()
        yield f"without a crash: {self.reference}"
        yield from (f"note: {each}" for each in self.remarks())
        if self.ok:
            yield self.verdict()
        for number, finding in enumerate(self.findings, 1):
            yield ""
            yield f"{number}. {finding.title}"
            yield f"   {finding.what}"
            yield f"   What to do: {finding.advice}"
            if finding.points:
                yield f"   Seen: {seen_at(finding.points)}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def seen_at(points: tuple[str, ...], shown_max: int = 3) -> str:
    more = len(points) - shown_max
    return "; ".join(points[:shown_max]) + (f"; and at {more} more points" if more > 0 else "")
