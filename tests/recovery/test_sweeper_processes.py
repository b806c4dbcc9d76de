"""Eight sweepers that are processes of their own, at once, on the orphans of a killed process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import buoy
from buoy.core.ids import RunnerId
from buoy.core.log.events import Claimed
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.host.ids import SystemIds
from buoy.ports.records import Wants
from buoy.wiring.local_worker import runner_info

from .harness import KINDS
from .many_orphans import BEFORE, abandon, orphan, sweep_at_once

MANY, CROWD = 200, 8
# What a recovery by each policy appends, exactly once.
TAILS: dict[str, list[str]] = {
    "resume": [],
    "restart": ["claimed", "branch_created", "workflow_recovered"],
    "fail": ["claimed", "workflow_failed"],
    "hold": ["claimed", "paused"],
}


async def able_worker(client: Client) -> RunnerId:
    """This process, as one that could take the runs, so that no run is reported as work without a worker."""
    info = msgspec.structs.replace(runner_info(SystemIds(), "worker", queues=("default",)), workflows={"order": ()})
    client.liveness.announce(info.id)
    await client.store.register(info)
    return info.id


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_orphan_is_recovered_by_exactly_one_of_eight_processes(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/runs"
    abandon(url, MANY)
    quarter = MANY // 4

    async def look() -> None:
        async with buoy.connect(url) as client:
            worker = await able_worker(client)
            done = await asyncio.to_thread(sweep_at_once, url, CROWD)
            assert done == {"resumed": quarter, "restarted": quarter, "failed": quarter, "held": quarter, "unknown": 0}
            again = await asyncio.to_thread(sweep_at_once, url, 2)
            assert not +again, "doing it twice does nothing more"
            for number in range(MANY):
                run, policy = orphan(number)
                tail = (await read_log(client.store, run))[BEFORE:]
                assert [event.type for event in tail] == TAILS[policy], run
                assert all(
                    event.body.runner.startswith("sweeper-") for event in tail if isinstance(event.body, Claimed)
                )
            taken = [task.run_id for task in await client.store.claim_tasks(worker, Wants(), MANY)]
            going = [run for run, policy in map(orphan, range(MANY)) if policy in ("resume", "restart")]
            assert sorted(taken) == going, "what is to continue is queued, once each, and nothing is lost"
            assert await client.store.claim_tasks(worker, Wants(), MANY) == []

    asyncio.run(look())
