"""The time of a run, for a process that is about to write its log.

Invariants: a run's time never goes back. Where the store has a clock, the run's time is the date of its last event and
what has passed in the store since: a process whose clock is wrong by hours neither fires a timer too soon nor too late.
Where the store has none, a process has its own clock, and the time that the last runner handed over with the task. What
its own clock finds due is due for the run: the run's time is then at least that of the wake-up.
"""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunId
from buoy.engine.run.ledger import Ledger
from buoy.ports.host import Clock
from buoy.ports.records import Evidence, Task
from buoy.ports.store import Store

_RUN_TIME = "run_time"
_RUN_DUE = "run_due"


async def run_now(store: Store, clock: Clock, run_id: RunId, last_at: float) -> float:
    """The run's time now. `last_at`: the date of the last event that the caller has read of its log.

    If another process has appended since, the caller is fenced, and the answer does not matter.
    """
    record = await store.run(run_id) if store.has_clock else None
    if record is None:
        return max(clock.now(), last_at)
    return last_at + max(await store.now() - record.updated_at, 0.0)


async def keep_time(store: Store, clock: Clock, run_id: RunId, ledger: Ledger, dated_at: float | None) -> None:
    """Lets a ledger that is about to write go by the run's time: by the store's clock, or at least `dated_at`."""
    if store.has_clock:
        ledger.set_time(await run_now(store, clock, run_id, ledger.state.updated_at))
    elif dated_at is not None and dated_at > ledger.now():
        ledger.set_time(dated_at)


def carrying(run_time: float) -> Evidence:
    """The evidence of a task that is due at once, at that time of its run."""
    return {_RUN_TIME: run_time}


def carrying_due(run_time: float) -> Evidence:
    """The evidence of a task that is due by the clock, and then it is that time of its run."""
    return {_RUN_DUE: run_time}


def carried(task: Task) -> tuple[Task, float | None]:
    """The task without the run's time that it carries, and that time. None: it carries none, or was woken before."""
    run_time = task.evidence.get(_RUN_DUE if task.by_clock else _RUN_TIME)
    bare = {key: value for key, value in task.evidence.items() if key not in (_RUN_TIME, _RUN_DUE)}
    dated_at = float(run_time) if isinstance(run_time, int | float) else None
    return (msgspec.structs.replace(task, evidence=bare) if len(bare) < len(task.evidence) else task), dated_at


def still_carrying(task: Task) -> Evidence:
    """The evidence of a claimed task that is given back undriven. Whenever it is due again, the run's time has come."""
    bare, dated_at = carried(task)
    return bare.evidence if dated_at is None else {**bare.evidence, **carrying(dated_at), **carrying_due(dated_at)}
