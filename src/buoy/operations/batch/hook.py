"""The hook of a recovery: a command of the user that runs before jobs are reset.

Invariants: it runs once per recovery, on this machine, in the folder of the run, and only if there are jobs to reset.
If it fails, nothing is reset. What it gets is in variables and in a private file: the shell reads no value as code.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from buoy.core.ids import RunId, leaf_id
from buoy.errors import CommandFailed
from buoy.operations.batch.recover import JobRecovery
from buoy.ports.host import Command, Shell

# A hook that takes longer is ended.
HOOK_S = 3_600.0


class HookEnd(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a hook ended. Without an exit code and a signal it was ended or never began: `problem` says which."""

    command: str
    exit_code: int | None = None
    signal: int | None = None
    problem: str = ""
    log: str = ""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class HookPlace(msgspec.Struct, frozen=True):
    """Where a hook runs. `folder`: for its output and the file that it reads."""

    shell: Shell
    directory: str
    folder: str
    variables: dict[str, str]


async def run_hook(
    place: HookPlace, run_id: RunId, status: str, command: str, jobs: tuple[JobRecovery, ...], number: int
) -> HookEnd:
    """Runs the command with the plan of the recovery. `number`: unique in the run, for its log."""
    path = Path(place.folder) / run_id / "recovery.json"
    await asyncio.to_thread(_write, path, msgspec.json.encode(jobs))
    order = Command(
        run_id=run_id,
        leaf=leaf_id("", "recovery-hook", 1),
        attempt=number,
        command=command,
        directory=place.directory,
        variables={
            **place.variables,
            "BUOY_RUN_ID": run_id,
            "BUOY_RUN_STATUS": status,
            "BUOY_FAILED_JOBS": str(len(jobs)),
            "BUOY_RESET_JOBS": str(sum(each.reset for each in jobs)),
            "BUOY_RECOVERY_FILE": str(path),
        },
    )
    try:
        async with asyncio.timeout(HOOK_S):
            end = await place.shell.run(order)
    except TimeoutError:
        return HookEnd(command=command, problem=f"it took longer than {HOOK_S:g} s")
    except CommandFailed as error:
        return HookEnd(command=command, problem=str(error))
    tail = "" if end.exit_code == 0 else end.tail[-300:]
    return HookEnd(command=command, exit_code=end.exit_code, signal=end.signal, problem=tail, log=end.log)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(data)
