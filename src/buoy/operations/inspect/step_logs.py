"""Step logs: the files with what the commands of a run wrote, by step and attempt.

Invariant: the logs of a run are those on this machine. Commands elsewhere wrote theirs there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from buoy.config import log_folder
from buoy.core.ids import RunId
from buoy.core.spec.model import is_spec
from buoy.core.step_logs import LogName, parse_log_name
from buoy.engine.client.client import Client


class StepLog(msgspec.Struct, frozen=True):
    """One attempt's output."""

    leaf: str
    attempt: int
    path: str
    size: int = msgspec.field(name="bytes")


class StepLogs(msgspec.Struct, frozen=True):
    """The log files of a run, in the order in which they were started, as far as their times tell."""

    run_id: RunId
    logs: tuple[StepLog, ...]


class LogFolder(msgspec.Struct, frozen=True):
    """Where a run's commands write on this machine. `of_spec`: it has commands at all."""

    run_id: RunId
    path: Path
    of_spec: bool

    def logs(self, step: str | None = None) -> StepLogs:
        """All logs of the run, or those of one step, step/module or leaf."""
        if not self.path.is_dir():
            return StepLogs(self.run_id, ())
        named = [(path, parse_log_name(path.name)) for path in self.path.iterdir()]
        found = [(path, name) for path, name in named if name is not None and _of_step(name, step)]
        found.sort(key=lambda each: (each[0].stat().st_mtime, each[1]))
        logs = tuple(StepLog(name.leaf, name.attempt, str(path), path.stat().st_size) for path, name in found)
        return StepLogs(self.run_id, logs)


def _of_step(name: LogName, step: str | None) -> bool:
    if step is None or name.leaf == step:
        return True
    bare = name.leaf.rpartition("#")[0]
    return bare == step or bare.startswith(f"{step}/")


async def log_folder_of(client: Client, run_id: str) -> LogFolder:
    """Where that run's commands write on this machine."""
    document = (await client.record(run_id)).document
    folder = log_folder(client.store.name) / document.run_id
    return LogFolder(document.run_id, folder, is_spec(document.workflow))


async def run_ended(client: Client, run_id: str) -> bool:
    """Whether nothing more is written."""
    return (await client.record(run_id)).document.ended
