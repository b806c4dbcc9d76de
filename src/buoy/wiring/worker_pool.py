"""Worker processes: joins the worker pool, and each of its workers, to the processes of this machine.

Apart from the wiring: the parent of several workers loads no engine and opens no store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from buoy.host.child_processes import SystemChildren, SystemParent
from buoy.host.clock import SystemClock
from buoy.host.cores import cores
from buoy.host.garbage import collect_seldom
from buoy.operations.workers.worker_pool import PoolEvent, PoolOptions, WorkerPool
from buoy.ports.host import Clock
from buoy.ports.processes import MEMBER_OPTION, ParentProcess

__all__ = [
    "MEMBER_OPTION",
    "ParentProcess",
    "collect_seldom",
    "cores",
    "parent_process",
    "pool_clock",
    "spec_worker",
    "worker_pool",
]


def worker_pool(words: Sequence[str], options: PoolOptions, on_event: Callable[[PoolEvent], None]) -> WorkerPool:
    """A pool of `buoy` processes with these words."""
    return WorkerPool(SystemChildren(), pool_clock(), words, options, on_event)


def spec_worker(store: str | None, tell: Callable[[str], None]) -> WorkerPool:
    """One `buoy worker` for runs of specs, on that store or the configured one."""

    def hear(event: PoolEvent) -> None:
        if event.what != "spawned":
            code = "" if event.code is None else f", exit code {event.code}"
            tell(f"worker of specs: {event.what} {event.runner or ''}".rstrip() + code)

    words = ["worker", *([] if store is None else ["--store", store])]
    return worker_pool(words, PoolOptions(processes=1), hear)


def pool_clock() -> Clock:
    """The clock of this machine."""
    return SystemClock()


def parent_process(descriptor: int) -> ParentProcess:
    """The parent that gave this process that descriptor."""
    return SystemParent(descriptor)
