"""`resume` checks first whether a run needs a recovery, and does not continue a run whose check failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.errors import RecoveryFailed
from buoy.operations.control.resume import resume_run
from buoy.ports.store import Store
from buoy.recovery.recover import recover_run
from tests.core.logbook import claimed, started

from .harness import RecoveryHarness, created, play
from .test_store_failures import BAD, ERRORS, Faulty
from .test_sweep import UNDER_WAY

RUN = RunId("lost")
GONE = (created(workflow="spec:s", version=BAD), claimed("r1"), started("a#1"))


def test_a_recovery_that_fails_is_the_answer(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, RUN, *GONE)
        with pytest.raises(RecoveryFailed, match="is not in this store"):
            await resume_run(harness.client, RUN, Wording())

    play(tmp_path, test)


def test_a_paused_run_whose_check_got_no_answer_stays_paused(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant(RUN, *GONE, e.Paused(reason="user"))
        client = harness.client_of(cast(Store, Faulty(harness.store, "definition", ERRORS[0])))
        with pytest.raises(RecoveryFailed, match="could not be read"):
            await resume_run(client, RUN, Wording())
        assert (await harness.types(RUN))[-1] == "paused"
        assert await harness.store.inbox(RUN) == []

    play(tmp_path, test)


class Overtaken:
    """A store on which another process recovers the run just before the first commit of this one."""

    def __init__(self, harness: RecoveryHarness) -> None:
        self._harness = harness
        self._overtaken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._harness.store, name)

    async def commit(self, writes: Any) -> Any:
        if not self._overtaken:
            self._overtaken = True
            await recover_run(self._harness.client, RUN)
        return await self._harness.store.commit(writes)


def test_a_run_that_another_process_recovers_at_the_same_moment_is_resumed(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, RUN, created(), *UNDER_WAY)
        done = await resume_run(harness.client_of(cast(Store, Overtaken(harness))), RUN, Wording())
        assert (done.outcome, done.error) == ("queued", None)

    play(tmp_path, test)
