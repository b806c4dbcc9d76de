"""The spool of a job runner: ends of jobs that the store has not confirmed, kept on disk.

Invariants: an end is on disk about a second after its job, unless the store has confirmed it by then. A file is whole
or absent, and counts only for the store that it names: a folder may have logs of several. Files are private.
A process removes the files whose ends the store has confirmed to it. The file of a dead runner, whose unsent writes
another process delivered, stays until the run is purged: it is read only where the log has no end of that attempt.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from buoy.core.ids import LeafId, RunId, check_run_id
from buoy.core.limits import SPOOL_AFTER_S
from buoy.core.step_logs import log_name

_Job: TypeAlias = tuple[RunId, LeafId]


class FileSpool:
    """The spool of one process. Ends go to `folder/RUN/LEAF.ATTEMPT.end`, beside the logs."""

    def __init__(self, folder: Path, store: str, say: Callable[[str], None]) -> None:
        self._folder = folder.absolute()
        self._head = store.encode() + b"\n"
        self._say = say
        # Ends since the last look, and those that were there at it.
        self._fresh: dict[_Job, tuple[int, bytes]] = {}
        self._waiting: dict[_Job, tuple[int, bytes]] = {}
        self._written: dict[_Job, Path] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._disk: asyncio.Task[None] | None = None

    def keep(self, run_id: RunId, leaf: LeafId, attempt: int, data: bytes) -> None:
        """A job has ended. Only its last attempt counts."""
        self.confirmed(run_id, leaf)
        self._fresh[run_id, leaf] = (attempt, data)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SPOOL_AFTER_S, self._due)

    def confirmed(self, run_id: RunId, leaf: LeafId) -> None:
        """The store has the end of this job."""
        self._fresh.pop((run_id, leaf), None)
        self._waiting.pop((run_id, leaf), None)
        path = self._written.pop((run_id, leaf), None)
        if path is not None:
            self._next(partial(self._remove, path))

    async def read(self, run_id: RunId, leaf: LeafId, attempt: int) -> bytes | None:
        """The end that an earlier runner could not tell the store."""
        path = self._path(run_id, leaf, attempt)
        try:
            data = await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            return None
        if not data.startswith(self._head):
            return None
        self._written[run_id, leaf] = path
        return data.removeprefix(self._head)

    async def close(self) -> None:
        """Writes what is left: this process ends."""
        if self._timer is not None:
            self._timer.cancel()
        self._look()
        self._look()
        if self._disk is not None:
            await self._disk

    def _due(self) -> None:
        self._timer = None
        self._look()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(SPOOL_AFTER_S, self._due)

    def _look(self) -> None:
        """Writes what was there at the look before: most ends are confirmed by then."""
        for job, (attempt, data) in self._waiting.items():
            path = self._written[job] = self._path(*job, attempt)
            self._next(partial(self._write, path, self._head + data))
        self._waiting, self._fresh = self._fresh, {}

    def _next(self, work: Callable[[], None]) -> None:
        """In a thread, after all that was asked for before: a file that is removed must have been written."""
        self._disk = asyncio.ensure_future(self._after(self._disk, work))

    async def _after(self, before: asyncio.Task[None] | None, work: Callable[[], None]) -> None:
        if before is not None:
            await asyncio.wait([before])
        await asyncio.to_thread(work)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._say(f"the file of a job's end could not be removed: {error}; remove it")

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = path.with_suffix(".draft")
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            self._say(f"the end of a job could not be kept on disk: {error}; it is lost if this runner dies")

    def _path(self, run_id: RunId, leaf: LeafId, attempt: int) -> Path:
        return self._folder / check_run_id(run_id) / f"{log_name(leaf, attempt).removesuffix('.log')}.end"
