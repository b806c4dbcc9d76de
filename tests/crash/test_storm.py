"""A short storm on each store. `python -m tests.crash.storm --seconds 600` is a long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .storm import storm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("store", ["sqlite", "folder"])
def test_no_run_is_lost_or_repeated_in_a_storm(store: str, tmp_path: Path) -> None:
    found = asyncio.run(storm(store, seconds=6.0, workers=2, load=30, seed=1, folder=tmp_path, hits_min=2))
    assert found["problems"] == []
    assert (found["lost"], found["repeated"]) == (0, 0)
    assert found["recoveries"]["taken_over"] > 0, "the kills hit nothing: the test shows nothing"
