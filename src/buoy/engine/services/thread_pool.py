"""Pool: a bounded set of daemon threads for sync steps and sync workflows.

Why not the standard executor: it joins its threads when the process ends, so that one hanging step would keep a
stopped runner alive.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

from buoy.ports.host import Threads


class ThreadPool:
    """Runs work on at most `size` threads, made when needed."""

    def __init__(self, threads: Threads, size: int, name: str) -> None:
        self._threads = threads
        self._size = size
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._made = 0
        self._busy = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Called on the loop's thread only. `work` must not raise."""
        self._busy += 1
        if self._busy > self._made and self._made < self._size:
            self._made += 1
            self._threads.run(self._serve, f"{self._name}-{self._made}")
        self._queue.put(work)

    def done(self) -> None:
        """Called on the loop's thread for each work that ended."""
        self._busy -= 1

    def close(self) -> None:
        """Idle threads end; busy ones end after their work, or with the process."""
        for _ in range(self._made):
            self._queue.put(None)

    def _serve(self) -> None:
        while True:
            work = self._queue.get()
            if work is None:
                return
            work()
