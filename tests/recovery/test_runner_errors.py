"""Errors that a runner met and survived: a trouble of its store's status while they are fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.core.limits import ERRORS_FRESH_S
from buoy.operations.maintenance.status import store_status
from buoy.ports.records import Beat

from .harness import KINDS, RecoveryHarness, play


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("age_s", "shown"), [(0.0, True), (ERRORS_FRESH_S, True), (ERRORS_FRESH_S + 1.0, False)])
def test_errors_are_a_trouble_while_they_are_fresh(tmp_path: Path, kind: str, age_s: float, shown: bool) -> None:
    async def test(harness: RecoveryHarness) -> None:
        runner = await harness.runner("r1")
        await harness.store.beat(runner, Beat(number=1, errors=8, last_error="it rained", error_age_s=age_s))
        report = await store_status(harness.client)
        assert any("met 8 errors, the last: it rained" in each for each in report.troubles) == shown
        assert [each.errors for each in report.runners] == [8], "counted for good"

    play(tmp_path, test, kind)
