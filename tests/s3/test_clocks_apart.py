"""Two real workers on a bucket whose clocks are an hour apart: one is killed, the other takes its runs over.

A minute each, so only with `BUOY_S3_ALL=1`. Folders, whose layout is the same, have this test in every run.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.freeze import freeze
from tests.patience import wait_until
from tests.recovery.skewed_worker import append_commit, naps, works
from tests.recovery.test_clocks_apart import (
    HOUR_S,
    declared_dead,
    in_time,
    log_of,
    looked_at,
    signalled,
    started,
    types_of,
    worker,
)

from .seaweed import Seaweed


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("BUOY_S3_ALL"), reason="only with BUOY_S3_ALL=1: it takes minutes")
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_the_runs_of_a_worker_that_is_killed_continue_by_the_other_clock(
    server: Seaweed, prefix: str, tmp_path: Path, ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUOY_HOST", "node-c")
    url, place = server.url(prefix), tmp_path / "executed"
    with worker("node-b", url, 0.0) as second:
        freeze(second.pid, url)
        with worker("node-a", url, ahead_s) as first:
            assert asyncio.run(looked_at(url)) == {"node-a": None, "node-b": None}, "a clock proves nothing"
            started(url, place, works, naps, append_commit)
            wait_until(lambda: place.exists() and "signal_waited" in types_of(url, "append_commit"))
            wait_until(lambda: "timer_started" in types_of(url, "naps"))
            first.kill()
            first.wait()
        second.send_signal(signal.SIGCONT)
        asyncio.run(declared_dead(url))
        asyncio.run(signalled(url))
        for run_id in ("works", "naps", "append_commit"):
            wait_until(lambda run_id=run_id: types_of(url, run_id)[-1] == "workflow_completed")  # type: ignore[misc]
    assert all(in_time(log_of(url, run_id)) for run_id in ("naps", "append_commit"))
    assert sorted(place.read_text().split()) == ["node-a", "node-b", "node-b"]
