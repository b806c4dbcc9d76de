"""Totals: what many seeds amount to, in words and as JSON."""

from __future__ import annotations

import msgspec

from simulator.seed import Verdict
from simulator.widening import STORE_CALLS


class Totals(msgspec.Struct):
    """Counts over verdicts. `broken_seeds`: those that broke a promise, with the promise."""

    seeds: int = 0
    broken: int = 0
    runs: int = 0
    events: int = 0
    turns: int = 0
    virtual_s: float = 0.0
    faults: dict[str, int] = {}
    acts: dict[str, int] = {}
    recoveries: dict[str, int] = {}
    broken_seeds: list[tuple[int, str, str]] = []

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.runs += verdict.runs
        self.events += verdict.events
        self.turns += verdict.turns
        self.virtual_s += verdict.virtual_s
        for mine, more in (
            (self.faults, verdict.faults),
            (self.acts, verdict.acts),
            (self.recoveries, verdict.recoveries),
        ):
            for name, count in more.items():
                mine[name] = mine.get(name, 0) + count
        if verdict.violations:
            self.broken += 1
            self.broken_seeds.append((verdict.seed, verdict.store, verdict.violations[0].rule))

    @property
    def crashes(self) -> int:
        """How many points of all histories a process was killed at."""
        return sum(count for kind, count in self.faults.items() if kind.startswith("crash"))

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def in_words(self, seeds: int, stores: tuple[str, ...]) -> str:
        last = f"{self.broken} broke a promise" if self.broken else "every promise was kept"
        return "\n".join(
            (
                _listed("faults", {kind: count for kind, count in self.faults.items() if not _call(kind)}),
                _by_call(self.faults),
                _listed("people", self.acts),
                _listed("recoveries", self.recoveries),
                f"{seeds} seeds on {' and '.join(stores)}: {self.runs:,} runs, {self.events:,} events; {last}",
            )
        )


def _call(kind: str) -> str:
    """The call of the store that a crash happened in; nothing for other faults."""
    crash, _, call = kind.rpartition(" ")
    return call if crash in ("crash before", "crash after") else ""


def _by_call(faults: dict[str, int]) -> str:
    """Each call of the store, with the crashes before and after it that happened."""
    calls = dict.fromkeys([*STORE_CALLS, *(each for each in map(_call, faults) if each)])
    pairs = {
        call: (faults.get(f"crash before {call}", 0), faults.get(f"crash after {call}", 0))
        for call in calls
    }  # fmt: skip
    told = sorted(pairs.items(), key=lambda each: -sum(each[1]))
    some = ", ".join(f"{call} {before:,}/{after:,}" for call, (before, after) in told)
    return f"crashes before/after each call of the store: {some}"


def _listed(what: str, counts: dict[str, int]) -> str:
    some = ", ".join(f"{count:,} x {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{what}: {some or 'none'}"
