"""The time of a run, for a process that is about to write its log.

Invariants: a run's time never goes back. Where the store has a clock, the run's time is the date of its last event and
what has passed in the store since: a process whose clock is wrong by hours neither fires a timer too soon nor too late.
Where the store has none, a process has only its own clock.
"""

from __future__ import annotations

from buoy.core.ids import RunId
from buoy.engine.run.ledger import Ledger
from buoy.ports.host import Clock
from buoy.ports.store import Store


async def run_now(store: Store, clock: Clock, run_id: RunId, last_at: float) -> float:
    """The run's time now. `last_at`: the date of the last event that the caller has read of its log.

    If another process has appended since, the caller is fenced, and the answer does not matter.
    """
    record = await store.run(run_id) if store.has_clock else None
    if record is None:
        return max(clock.now(), last_at)
    return last_at + max(await store.now() - record.updated_at, 0.0)


async def keep_time(store: Store, clock: Clock, run_id: RunId, ledger: Ledger) -> None:
    """Lets a ledger that is about to write go by the run's time, where the store has a clock to tell it by."""
    if store.has_clock:
        ledger.set_time(await run_now(store, clock, run_id, ledger.state.updated_at))
