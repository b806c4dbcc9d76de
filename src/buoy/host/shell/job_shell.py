"""The shell of a job runner: one guard process for all commands (`job_supervisor`).

Invariants: a command ends with this process, however it ends. A cancelled call returns when the whole process tree has
ended. If the guard is lost, what it ran is killed by proof, and the next command gets a new guard.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from buoy.core.ids import check_run_id
from buoy.core.step_logs import log_name
from buoy.errors import CommandFailed
from buoy.host.cores import cores
from buoy.host.shell.process_tree import result_file
from buoy.host.shell.shell import guard_lost, missing_paths, not_started, oom_kills, read_result
from buoy.ports.host import Clock, Command, CommandEnd

# The guard imports its two modules, and nothing else of the package.
_LAUNCH = (
    "import sys, types; package = types.ModuleType('buoy'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['buoy'] = package; from buoy.host.shell.job_supervisor import main; main()"
)
_PACKAGE = str(Path(__file__).parents[2])
_READ_MAX = 1 << 16


class _Told(msgspec.Struct, frozen=True):
    """What the guard says about a command: its PID at its start, and how it ended."""

    id: int
    pid: int | None = None
    # code, signal, error (it could not be started), or never (it was stopped before).
    kind: str = ""
    number: int = 0
    error: str = ""
    file: str = ""
    peak_bytes: int = 0
    stopped: bool = False
    over_memory: bool = False
    result: bool = False
    tail: str = ""


class _Guard:
    """The guard process and the commands that it has."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ends: dict[int, asyncio.Future[_Told]] = {}
        # PIDs, each with the result file that the environment of the process names.
        self._groups: dict[int, tuple[int, str]] = {}
        self._results: dict[int, str] = {}
        self._number = 0
        self._decoder = msgspec.json.Decoder(_Told)
        self._listening = asyncio.ensure_future(self._listen())

    @property
    def lost(self) -> bool:
        return self._listening.done()

    async def run(self, order: dict[str, Any]) -> _Told:
        """How the command ended. A cancellation stops it, and is passed on when it has ended."""
        self._number += 1
        number, end = self._number, asyncio.get_running_loop().create_future()
        self._ends[number] = end
        self._results[number] = order["result"]
        self._send({"id": number, **order})
        try:
            return await asyncio.shield(end)
        except asyncio.CancelledError:
            self._send({"id": number})
            while not end.done():
                await asyncio.wait([end])
            end.exception()
            raise

    async def close(self) -> None:
        """Ends the guard, and with it what it still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait([self._listening])
        await self._process.wait()

    def _send(self, frame: dict[str, Any]) -> None:
        data = msgspec.json.encode(frame)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(data).to_bytes(4, "big") + data)
        except (OSError, RuntimeError):
            return  # it has ended: `_listen` tells its commands

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            rest = b""
            while data := await self._process.stdout.read(_READ_MAX):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._hear(self._decoder.decode(line))
        finally:
            self._lose()

    def _hear(self, told: _Told) -> None:
        if told.pid is not None:
            self._groups[told.id] = (told.pid, self._results[told.id])
            return
        self._groups.pop(told.id, None)
        self._results.pop(told.id, None)
        end = self._ends.pop(told.id)
        if not end.done():
            end.set_result(told)

    def _lose(self) -> None:
        for group, result in self._groups.values():
            if result_file(group) == result:
                _kill_group(group)
        for end in self._ends.values():
            if not end.done():
                end.set_exception(guard_lost())
        self._ends.clear()


class JobShell:
    """The shell of one process. Logs go to `folder/RUN/LEAF.ATTEMPT.log`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder.absolute()
        self._clock = clock
        self._starting = asyncio.Lock()
        self._guard: _Guard | None = None

    @property
    def slots(self) -> int:
        return cores()

    async def run(self, command: Command) -> CommandEnd:
        name = log_name(command.leaf, command.attempt)
        log = f"{self._folder}/{check_run_id(command.run_id)}/{name}"
        result = f"{log.removesuffix('.log')}.result"
        began, killed_before = self._clock.monotonic(), oom_kills() if command.memory_max_bytes else 0
        guard = await self._live_guard()
        told = await guard.run(_order(command, log, result))
        if told.kind == "error":
            raise _refused(command, told)
        return CommandEnd(
            exit_code=told.number if told.kind == "code" else None,
            signal=told.number if told.kind == "signal" else None,
            peak_memory_bytes=told.peak_bytes,
            duration_s=round(self._clock.monotonic() - began, 3),
            log=name,
            tail=told.tail,
            out_of_memory=oom_kills() > killed_before if told.number and command.memory_max_bytes else False,
            result=await asyncio.to_thread(read_result, Path(result)) if told.result else None,
            stopped=told.stopped,
            over_memory=told.over_memory,
        )

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        return await asyncio.to_thread(missing_paths, directory, paths)

    async def close(self) -> None:
        """At the end of this process, when no command is wanted any more."""
        if self._guard is not None:
            await self._guard.close()

    async def _live_guard(self) -> _Guard:
        async with self._starting:
            if self._guard is None or self._guard.lost:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", "-c", _LAUNCH, _PACKAGE,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
                )  # fmt: skip
                self._guard = _Guard(process)
            return self._guard


def _order(command: Command, log: str, result: str) -> dict[str, Any]:
    return {
        "command": command.command,
        "directory": command.directory,
        "variables": {**command.variables, "BUOY_RESULT_FILE": result},
        "log": log,
        "result": result,
        "grace_s": command.grace_s,
        "memory_max": command.memory_max_bytes,
    }


def _refused(command: Command, told: _Told) -> CommandFailed:
    error = OSError(told.number, told.error, told.file)
    if isinstance(error, FileNotFoundError) and told.file == command.directory:
        return not_started(f"directory {command.directory!r} is not there", error)
    return not_started(f"{told.error} ({told.file or command.directory})", error)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
