"""Sweep: one whole sweep with second looks, and the counts that all sweeps report."""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import LOOKS_APART_S, SUSPECT_AFTER_S
from buoy.operations.access import StoreAccess
from buoy.recovery.fleet import read_fleet
from buoy.recovery.recover import Recovery
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.sweep import SweepOptions
from buoy.recovery.sweep.sweeper import Sweeper, WholeSweep
from buoy.recovery.sweep.tally import Swept

__all__ = [
    "COUNTED",
    "Recovery",
    "Scope",
    "SweepOptions",
    "SweepReport",
    "SweptRun",
    "WholeSweep",
    "sweep_counts",
    "sweep_once",
    "swept_run",
]

COUNTED = ("scanned", "healthy", "restarted", "resumed", "failed", "held", "skipped", "unknown")


class SweptRun(msgspec.Struct, frozen=True):
    """A run that a sweep found in trouble, as programs get it."""

    run_id: RunId
    action: str
    needed: bool
    new_branch_id: int | None
    reason: str | None
    error: str | None
    note: str | None


class SweepReport(msgspec.Struct, frozen=True):
    """What one whole sweep did. `worker_alive`: whether some worker could take what it moved."""

    done: WholeSweep
    found: tuple[Recovery, ...]
    worker_alive: bool
    dry_run: bool

    @property
    def failed(self) -> bool:
        """Whether some runs are still in trouble, or were moved although no worker is alive."""
        swept = self.done.swept
        waiting = swept.moved and not self.worker_alive and not self.dry_run
        return bool(waiting or swept.troubles or swept.unknown or self.done.reconciled.troubles)


async def sweep_once(sweeper: Sweeper, at: StoreAccess, *, dry_run: bool = False) -> SweepReport:
    """A whole sweep, and a second look at runners of other hosts that were suspected before."""
    found: list[Recovery] = []
    sweeper.on_recovery = found.append
    done = await sweeper.whole()
    # One of another host that was suspected before is looked at a second time, and then it is certain.
    later = await sweeper.second_looks(SUSPECT_AFTER_S + LOOKS_APART_S)
    fleet = await read_fleet(at.store, at.liveness)
    served = any(each.role == "worker" for each in fleet.living)
    done = msgspec.structs.replace(done, swept=_sum(done.swept, later))
    return SweepReport(done, tuple(found), served, dry_run)


def _sum(first: Swept, second: Swept) -> Swept:
    numbers = {word: getattr(first, word) + getattr(second, word) for word in (*COUNTED, "dead_runners")}
    return msgspec.structs.replace(
        first,
        **numbers,
        troubles=first.troubles + second.troubles,
        apart=first.apart + second.apart,
        notices=first.notices + second.notices,
    )


def sweep_counts(done: WholeSweep) -> dict[str, object]:
    """The counts of a sweep as `--json` gives them."""
    swept = {word: getattr(done.swept, word) for word in (*COUNTED, "dead_runners", "more", "troubles", "notices")}
    return {**swept, "reconciled": done.reconciled, "duration_s": round(done.duration_s, 3), "left": done.left}


def swept_run(found: Recovery) -> SweptRun:
    """A run that a sweep found in trouble."""
    return SweptRun(
        found.run_id, found.action, found.needed, found.new_branch_id, found.reason, found.error, found.note
    )
