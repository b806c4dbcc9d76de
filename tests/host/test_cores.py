"""How many cores a process may use: affinity and both forms of a control group's quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from buoy.host import cores as module
from buoy.host.cores import cores


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("200000 100000\n", 2), ("150000 100000", 2), ("max 100000", 8), ("5000 100000", 1), ("", 8)]
)
def test_the_quota_of_a_control_group_bounds_the_cores(tmp_path: Path, eight: None, text: str, expected: int) -> None:
    write(tmp_path / "cpu.max", text)
    assert cores(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("300000", 3), ("-1", 8)])
def test_the_older_form_of_a_quota_counts_too(tmp_path: Path, eight: None, quota: str, expected: int) -> None:
    write(tmp_path / "cpu" / "cpu.cfs_quota_us", quota)
    write(tmp_path / "cpu" / "cpu.cfs_period_us", "100000")
    assert cores(tmp_path) == expected


def test_without_a_quota_the_affinity_counts(tmp_path: Path) -> None:
    assert cores(tmp_path) == len(os.sched_getaffinity(0))
