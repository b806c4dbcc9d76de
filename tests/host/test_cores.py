"""Cores that a process may use, and kills for lack of memory: from both versions of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from buoy.host import cores as module
from buoy.host.cores import cores
from buoy.host.shell.shell import oom_kills


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


@pytest.mark.parametrize(
    ("own", "path", "text"),
    [
        ("1:memory:/job_7/step_0\n0::/job_7\n", "memory/job_7/step_0/memory.oom_control", "under_oom 0\noom_kill 3\n"),
        ("0::/job_7\n", "job_7/memory.events", "oom 5\noom_kill 3\noom_group_kill 0\n"),
        # Inside of a container the group's own path is the root.
        ("0::/somewhere/else\n", "memory.events", "oom_kill 3\n"),
        ("3:cpu:/x\n", "memory.events", ""),
    ],
)
def test_kills_of_the_kernel_are_counted_in_both_versions_of_control_groups(
    own: str, path: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    (tmp_path / "own").write_text(own)
    assert oom_kills(tmp_path / "own", tmp_path) == (3 if text else 0)
