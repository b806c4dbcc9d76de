"""Hand-over: the task change that a runner writes when it releases a run that only waits.

A store without a clock leaves each task's due time to the clock of its reader, and those clocks may differ by hours.
Invariants: a due time is computed by the clock of this machine. Another machine may have written the log's times. A
runner that stops hands over at once if other machines use the store: none of them waits for its clock. So does a
runner that started the run and does not serve its queue: it would not take the run back when its clock says so. The
task carries the run's time to the next runner wherever the next runner's clock cannot tell it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buoy.core.limits import HOSTS_LOOK_MAX
from buoy.engine.run.execution import Execution
from buoy.engine.run.run_time import carrying, carrying_due
from buoy.ports.host import Clock
from buoy.ports.records import Released, RunnerInfo
from buoy.ports.store import Store

if TYPE_CHECKING:
    from buoy.engine.process.runner import Runner


async def used_by_other_hosts(store: Store, info: RunnerInfo) -> bool:
    """Whether runners of other machines use a store that has no clock of its own, or did so lately."""
    if store.has_clock:
        return False
    return any(record.info.host != info.host for record in await store.runners(gone=HOSTS_LOOK_MAX))


def never_returns(runner: Runner, execution: Execution) -> bool:
    """Whether only other machines will take this run, which this runner has merely started."""
    store, info, created = runner.store, runner.info, execution.state.created
    elsewhere = created is not None and bool(info.queues) and created.queue not in info.queues
    return elsewhere and not store.single_host and not store.has_clock


def release_of(execution: Execution, clock: Clock, *, at_once: bool) -> Released:
    """The release of a run that only waits: the store wakes it at its time or by a message.

    `at_once`: the next runner takes it now, and waits in its turn.
    """
    state, ledger, now = execution.state, execution.ledger, clock.now()
    seen, due_at = execution.mailbox.seen, state.wake_at if state.pause is None else state.pause.expires_at
    if execution.has_undelivered and state.pause is None:
        return Released(due_at=now, now=now, seen=seen)
    if due_at is None:
        return Released(due_at=None, now=now, seen=seen)
    if at_once:
        return Released(due_at=now, now=now, seen=seen, cause="interrupted", evidence=carrying(ledger.now()))
    here = ledger.here(due_at)
    return Released(due_at=here, now=now, seen=seen, evidence=carrying_due(due_at) if here < due_at else {})
