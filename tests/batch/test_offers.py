"""How an owner offers jobs: lots of 256 at most, and all lots of one turn in one commit."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import Any

import msgspec

from buoy.core.batch.lots import Lot
from buoy.core.ids import RunId
from buoy.core.limits import JOBS_COMMIT_MAX, JOBS_GUESSED_MAX, LOT_JOBS_MAX
from buoy.core.log import events as e
from buoy.engine.read_log import read_log
from buoy.host.clock import SystemClock
from buoy.stores import open_store
from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S, wait_until


def _log(batch: Batch) -> list[e.Event]:
    async def read() -> list[e.Event]:
        store = await open_store(batch.store, SystemClock())
        try:
            return await read_log(store, RunId("r1"))
        finally:
            await store.close()

    return asyncio.run(read())


def _commits(log: list[e.Event]) -> list[list[e.Event]]:
    """The first event of a commit has a nonce."""
    number = 0
    found = []
    for event in log:
        number += event.nonce is not None
        found.append((number, event))
    return [[event for _, event in part] for _, part in groupby(found, key=lambda each: each[0])]


def _offers(batch: Batch, jobs: int, **more: Any) -> list[list[int]]:
    """The sizes of the lots in each commit that offers jobs, once all are offered and no runner has come."""
    spec = {"name": "offers", "parameters": {"k": f"1:{jobs}"}, "steps": [{"id": "j_{k}", "run": "true", **more}]}
    batch.submit(spec)
    owner = batch.process("worker")
    wait_until(lambda: sum(type(each.body) is e.JobOffered for each in _log(batch)) == jobs)
    owner.terminate()
    assert owner.wait(PATIENCE_S) == 0
    found = []
    for commit in _commits(_log(batch)):
        lots = [each.body for each in commit if isinstance(each.body, e.ChildStarted)]
        sizes = [len(msgspec.json.decode(each.input, type=Lot).jobs) for each in lots]
        offered = [each.body.leaf for each in commit if isinstance(each.body, e.JobOffered)]
        assert sum(sizes) == len(offered) == len(set(offered))
        if sizes:
            found.append(sizes)
    return found


def test_a_lot_has_at_most_256_jobs_and_the_lots_of_one_turn_are_one_commit(batch: Batch) -> None:
    # The first turn does not know yet that the limit of time tells how long the jobs take.
    full = [LOT_JOBS_MAX] * (JOBS_COMMIT_MAX // LOT_JOBS_MAX)
    assert _offers(batch, 1500, resources={"time": "0.1s"}) == [[JOBS_GUESSED_MAX], full, [220]]


def test_256_jobs_are_offered_at_first_if_nothing_tells_how_long_they_take(batch: Batch) -> None:
    found = _offers(batch, 300)
    assert [sum(sizes) for sizes in found] == [JOBS_GUESSED_MAX, 300 - JOBS_GUESSED_MAX]
    assert max(map(max, found)) == 30
