"""Lots that a dead runner left, of runs that have ended: the sweeper ends them.

Why: only a runner of jobs claims a lot, and after its run has ended none may come. The runner that had it is proven
dead, and its guard ended its commands, so no command of such a lot runs.
Invariant: a lot ends here only if its run has ended and no runner has it; the end is an append like any other.
"""

from __future__ import annotations

from collections.abc import Iterable

from buoy.core.ids import RunId
from buoy.core.log.events import LOT_WORKFLOW
from buoy.engine.client.client import Client
from buoy.engine.run.unclaimed_lots import end_lot, is_unclaimed_lot
from buoy.ports.records import RunnerRecord
from buoy.ports.store import Store
from buoy.recovery.sweep.scan import held_by


async def held_lots(store: Store, runner: RunnerRecord) -> list[RunId]:
    """The lots that a runner of jobs holds. Any other runner costs no look."""
    if LOT_WORKFLOW not in runner.info.workflows:
        return []
    found = [record.document async for record in held_by(store, runner.info.id)]
    return [each.run_id for each in found if each.workflow == LOT_WORKFLOW]


async def end_left(client: Client, lots: Iterable[RunId]) -> list[RunId]:
    """Ends those of these lots whose run has ended, and returns them."""
    return [each for each in lots if await _end(client, each)]


async def _end(client: Client, lot: RunId) -> bool:
    record = await client.store.run(lot)
    if record is None or not is_unclaimed_lot(record) or record.document.parent is None:
        return False
    parent = await client.store.run(record.document.parent.run)
    if parent is None or not parent.document.ended:
        return False
    return await end_lot(client.store, client.clock, client.ids, lot, client.actor)
