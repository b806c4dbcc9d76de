"""Whether a sweeper is running, and whether its sweeps succeed: read from heartbeats, shown in `buoy status`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from buoy.core.diagnosis.facts import RunnerFacts
from buoy.core.ids import RunnerId
from buoy.core.times import StoreTime
from buoy.ports.records import Beat, RunnerInfo, RunnerRecord, SweepHealth
from buoy.recovery.sweep.sweeper_health import SweeperState, sweeper_troubles, sweepers_of, swept_text

NOW = 10_000.0


def runner(name: str, sweep: SweepHealth | None, *, up_s: float = 5_000.0, gone: bool = False) -> RunnerRecord:
    info = RunnerInfo(
        id=RunnerId(name), host="host", boot_id="b", pid_namespace="n", pid=7, process_started="1", nonce="n"
    )  # fmt: skip
    return RunnerRecord(
        info,
        NOW - up_s,
        NOW,
        Beat(number=1, sweep=sweep),
        gone_at=NOW if gone else None,
        gone_why="stopped" if gone else None,
    )


def looked_at(*records: RunnerRecord) -> tuple[list[SweeperState], dict[str, RunnerFacts]]:
    fleet = {
        str(each.info.id): RunnerFacts(id=each.info.id, host="host", pid=7, gone_why=each.gone_why) for each in records
    }
    return sweepers_of(records, fleet, NOW), fleet


def health(**more: Any) -> SweepHealth:
    return SweepHealth(**{"interval_s": 300.0, "at": NOW - 60.0, "duration_s": 0.5, "sweeps": 3, **more})


@pytest.mark.parametrize(
    ("records", "needed", "told"),
    [
        ([runner("r1", health())], True, None),
        ([runner("r1", None)], True, "no sweeper is running"),
        ([], True, "no sweeper is running"),
        ([], False, None),
        ([runner("r1", health(failing=True, last_error="OSError: no"))], False, "fails to sweep: OSError: no"),
        ([runner("r1", health(at=NOW - 3_000.0))], False, "has not swept for 50 min"),
        ([runner("r1", health(at=None))], False, "has not finished a sweep since it was started"),
        ([runner("r1", health(at=None), up_s=5.0)], True, None),
        # From cron: it came and went.
        ([runner("r1", health(), gone=True)], True, None),
        ([runner("r1", health(at=NOW - 3_000.0), gone=True)], True, "the last sweep was 50 min ago"),
        ([runner("r1", health(failing=True), gone=True)], True, "failed"),
    ],
)
def test_an_absent_or_failing_sweeper_is_said(records: list[RunnerRecord], needed: bool, told: str | None) -> None:
    sweepers, fleet = looked_at(*records)
    found = sweeper_troubles(sweepers, fleet, needed=needed)
    assert (found == []) if told is None else (told in " ".join(found)), found


@pytest.mark.parametrize("apart_s", [3_600.0, -3_600.0])
def test_the_clock_of_a_sweeper_elsewhere_is_not_compared_with_ours(apart_s: float) -> None:
    def seen(at: float | None) -> SweeperState:
        sweep = health(at=None if at is None else at + apart_s)
        record = runner("r1", sweep, up_s=5.0 - apart_s)
        record = msgspec.structs.replace(record, beat_at=StoreTime(NOW + apart_s))
        facts = RunnerFacts(id=record.info.id, host="elsewhere", pid=7, beat_age_s=None)
        (state,) = sweepers_of([record], {"r1": facts}, StoreTime(NOW))
        return state

    assert (seen(None).up_s, seen(None).overdue) == (5.0, False)
    assert (seen(NOW - 60.0).age_s, seen(NOW - 60.0).overdue) == (60.0, False)
    assert seen(NOW - 3_000.0).overdue


def test_one_line_says_by_whom_and_when_last() -> None:
    def line(*records: RunnerRecord) -> str:
        return swept_text(looked_at(*records)[0])

    assert line() == "by no sweeper now"
    assert line(runner("r1", health(at=None))) == "by 1 sweeper, the first sweep is still to come"
    both = line(runner("r1", health(errors=2)), runner("r2", health(at=NOW - 5.0, duration_s=1.25)))
    assert both == "by 2 sweepers, last 5 s ago, in 1.2 s, 2 errors"
    assert line(runner("r1", health(), gone=True)) == "by no sweeper now, last 1 min ago, in 0.5 s"
