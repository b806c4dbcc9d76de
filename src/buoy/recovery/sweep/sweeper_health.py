"""Sweeper health: which processes sweep a store, since when, and whether their sweeps succeed. Read from heartbeats.

Invariants: as soon as there is something to sweep, an absent, failing or silent sweeper is a trouble. Silent means: no
sweep for several of its intervals. A sweeper that ended in good order (from cron) counts for a while. The ages of a
living sweeper whose clock cannot be compared with ours are those at its last heartbeat, which the same clock dated.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.diagnosis.facts import RunnerFacts
from buoy.core.durations import in_words
from buoy.core.explain.phrases import runner_text
from buoy.core.limits import SUSPECT_AFTER_S
from buoy.core.log.wording import counted
from buoy.core.times import StoreTime
from buoy.ports.records import RunnerRecord

# A sweeper without a whole sweep for this many intervals is in trouble.
_INTERVALS = 3


class SweeperState(msgspec.Struct, frozen=True, kw_only=True):
    """One sweeper. `age_s`: since its last whole sweep ended; None: none has ended yet."""

    runner: str
    role: str
    alive: bool
    interval_s: float
    up_s: float
    age_s: float | None = None
    duration_s: float = 0.0
    sweeps: int = 0
    errors: int = 0
    last_error: str | None = None
    failing: bool = False
    delay_s: float = 0.0

    @property
    def overdue(self) -> bool:
        since_s = self.up_s - self.delay_s if self.age_s is None else self.age_s
        return since_s > _INTERVALS * self.interval_s + SUSPECT_AFTER_S


def sweepers_of(records: Sequence[RunnerRecord], fleet: dict[str, RunnerFacts], now: StoreTime) -> list[SweeperState]:
    """Those that live, and of those that ended the one that swept last."""
    found: list[SweeperState] = []
    ended: list[SweeperState] = []
    for record in records:
        sweep = record.beat.sweep
        if sweep is None:
            continue
        facts = fleet.get(record.info.id)
        alive = facts is not None and not facts.gone
        at = record.beat_at if alive and facts is not None and facts.beat_age_s is None else now
        state = SweeperState(
            runner=record.info.id,
            role=record.info.role,
            alive=alive,
            interval_s=sweep.interval_s,
            up_s=max(at - record.registered_at, 0.0),
            age_s=None if sweep.at is None else max(at - sweep.at, 0.0),
            duration_s=sweep.duration_s,
            sweeps=sweep.sweeps,
            errors=sweep.errors,
            last_error=sweep.last_error,
            failing=sweep.failing,
            delay_s=sweep.delay_s,
        )
        (found if alive else ended).append(state)
    ended = [each for each in ended if each.age_s is not None]
    last = min(ended, key=lambda each: each.age_s or 0.0, default=None)
    return found if last is None else [*found, last]


def sweeper_troubles(sweepers: Sequence[SweeperState], fleet: dict[str, RunnerFacts], *, needed: bool) -> list[str]:
    """Troubles of the sweepers. `needed`: there are runs without a holder, or whose holder is dead."""
    living = [each for each in sweepers if each.alive]
    found = [f"{_name(each, fleet)} {_failure(each)}" for each in living if _failure(each)]
    if living or not needed:
        return found
    recent = [each for each in sweepers if not each.alive and not each.overdue]
    if recent:
        return found + [f"the last sweep ({recent[0].runner}) failed" for each in recent[:1] if each.failing]
    last = min((each.age_s for each in sweepers if each.age_s is not None), default=None)
    since = "" if last is None else f"; the last sweep was {in_words(last)} ago"
    return [*found, f"runs are active, but no sweeper is running{since}: start `buoy worker` or `buoy sweeper`"]


def _failure(sweeper: SweeperState) -> str | None:
    if sweeper.failing:
        return f"fails to sweep: {sweeper.last_error}"
    if not sweeper.overdue:
        return None
    if sweeper.age_s is None:
        return f"has not finished a sweep since it was started {in_words(sweeper.up_s)} ago"
    return f"has not swept for {in_words(sweeper.age_s)}, and should every {in_words(sweeper.interval_s)}"


def _name(sweeper: SweeperState, fleet: dict[str, RunnerFacts]) -> str:
    facts = fleet.get(sweeper.runner)
    return f"sweeper {sweeper.runner}" if facts is None else f"the sweeper of {runner_text(facts)}"


def swept_text(sweepers: Sequence[SweeperState]) -> str:
    """One line: by whom, and when last."""
    living = [each for each in sweepers if each.alive]
    ages = [each.age_s for each in sweepers if each.age_s is not None]
    who = [f"by {counted(len(living), 'sweeper')}" if living else "by no sweeper now"]
    if ages:
        last = min((each for each in sweepers if each.age_s is not None), key=lambda each: each.age_s or 0.0)
        who.append(f"last {in_words(min(ages))} ago, in {last.duration_s:.1f} s")
    elif living:
        who.append("the first sweep is still to come")
    errors = sum(each.errors for each in living)
    if errors:
        who.append(counted(errors, "error"))
    return ", ".join(who)
