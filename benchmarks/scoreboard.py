"""Scoreboard: medians, ratios of medians, and which targets they meet.

Invariant: nothing is asserted here. A target is met, not met, or unknown because a reading is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Literal

Readings = Mapping[str, Sequence[Mapping[str, float | int | str]]]


class Medians:
    """The medians over the rounds, asked for as `job/field`; none where a reading is missing."""

    def __init__(self, readings: Readings) -> None:
        self._found = {
            f"{job}/{field}": median(float(reading[field]) for reading in rounds)
            for job, rounds in readings.items()
            if rounds
            for field, value in rounds[0].items()
            if isinstance(value, int | float)
        }

    def get(self, key: str) -> float | None:
        return self._found.get(key)

    def ratio(self, over: str, under: str) -> float | None:
        a, b = self.get(over), self.get(under)
        return None if a is None or not b else a / b

    def as_dict(self) -> dict[str, float]:
        return dict(self._found)


Bound = Literal[">=", "<=", "<"]

HOLDS: dict[Bound, Callable[[float, float], bool]] = {
    ">=": lambda found, wanted: found >= wanted,
    "<=": lambda found, wanted: found <= wanted,
    "<": lambda found, wanted: found < wanted,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the board. Without a bound it is there to be read only."""

    title: str
    key: str
    under: str | None = None
    bound: Bound | None = None
    wanted: float | None = None
    unit: str = ""

    def found(self, medians: Medians) -> float | None:
        return medians.get(self.key) if self.under is None else medians.ratio(self.key, self.under)

    def verdict(self, medians: Medians) -> str:
        found = self.found(medians)
        if self.bound is None or self.wanted is None:
            return ""
        if found is None:
            return "unknown"
        return "met" if HOLDS[self.bound](found, self.wanted) else "NOT MET"


BUOY_STEPS, BUOY_MANY = "buoy.sequential/steps_per_s", "buoy.concurrent/steps_per_s"
RAW_SINGLE, RAW_BATCH = "raw.single/rows_per_s", "raw.batch/rows_per_s"
DBOS_STEPS, DBOS_MANY = "dbos.sequential/steps_per_s", "dbos.concurrent/steps_per_s"

TARGETS = (
    Line("sequential steps, of raw single commits", BUOY_STEPS, RAW_SINGLE, ">=", 0.6, "x"),
    Line("concurrent steps, of DBOS", BUOY_MANY, DBOS_MANY, ">=", 30, "x"),
    Line("one-step latency p50, of DBOS", "buoy.latency/p50_ms", "dbos.latency/p50_ms", "<=", 0.2, "x"),
    Line("one-step latency p99, of DBOS", "buoy.latency/p99_ms", "dbos.latency/p99_ms", "<=", 0.2, "x"),
    Line("replay, log reading included", "buoy.replay/steps_per_s", None, ">=", 50_000, "steps/s"),
    Line("waiting runs, idle CPU, all in memory", "buoy.waiting/cpu_percent", None, "<", 1, "% of a core"),
    Line("waiting runs, idle CPU, evicted", "buoy.waiting-evicted/cpu_percent", None, "<", 1, "% of a core"),
)

BESIDE = (
    Line("raw: single-row commits", RAW_SINGLE, unit="rows/s"),
    Line("raw: 100 rows per commit", RAW_BATCH, unit="rows/s"),
    Line("Buoy: sequential", BUOY_STEPS, unit="steps/s"),
    Line("DBOS: sequential", DBOS_STEPS, unit="steps/s"),
    Line("Buoy: concurrent", BUOY_MANY, unit="steps/s"),
    Line("DBOS: concurrent", DBOS_MANY, unit="steps/s"),
    Line("Buoy: latency p50", "buoy.latency/p50_ms", unit="ms"),
    Line("DBOS: latency p50", "dbos.latency/p50_ms", unit="ms"),
    Line("Buoy: latency p99", "buoy.latency/p99_ms", unit="ms"),
    Line("DBOS: latency p99", "dbos.latency/p99_ms", unit="ms"),
    Line("Buoy: replay, code alone", "buoy.replay/code_steps_per_s", unit="steps/s"),
    Line("Buoy: memory, waiting runs in memory", "buoy.waiting/rss_mb", unit="MB"),
    Line("Buoy: memory, waiting runs evicted", "buoy.waiting-evicted/rss_mb", unit="MB"),
    Line("Buoy: memory before the first run", "buoy.waiting/rss_before_mb", unit="MB"),
    Line("Buoy: per waiting run, in memory", "buoy.waiting/kb_per_run", unit="kB"),
    Line("Buoy: per waiting run, evicted", "buoy.waiting-evicted/kb_per_run", unit="kB"),
    Line("sequential steps, of DBOS", BUOY_STEPS, DBOS_STEPS, unit="x"),
    Line("concurrent steps, of raw batches", BUOY_MANY, RAW_BATCH, unit="x"),
)


def table(readings: Readings) -> str:
    """The board as text."""
    medians = Medians(readings)
    rows = [f"{'target':<42}{'found':>12} {'':<12}{'wanted':>12}"]
    rows += [_target_row(line, medians) for line in TARGETS]
    rows += ["", f"{'median':<42}{'found':>12} {'':<12}{'lowest':>12}{'highest':>12}"]
    rows += [_beside_row(line, medians, readings) for line in BESIDE]
    return "\n".join(rows)


def verdicts(readings: Readings) -> list[dict[str, object]]:
    """The same for a program."""
    medians = Medians(readings)
    return [
        {**asdict(line), "found": line.found(medians), "verdict": line.verdict(medians)} for line in TARGETS + BESIDE
    ]


def _target_row(line: Line, medians: Medians) -> str:
    wanted = f"{line.bound} {_number(line.wanted)}"
    found = _number(line.found(medians))
    return f"{line.title:<42}{found:>12} {line.unit:<12}{wanted:>12}  {line.verdict(medians)}"


def _beside_row(line: Line, medians: Medians, readings: Readings) -> str:
    row = f"{line.title:<42}{_number(line.found(medians)):>12} {line.unit:<12}"
    if line.under is not None:
        return row.rstrip()
    job, field = line.key.split("/")
    seen = [float(reading[field]) for reading in readings.get(job, ())]
    return (row + "".join(f"{_number(edge):>12}" for edge in ((min(seen), max(seen)) if seen else ()))).rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
