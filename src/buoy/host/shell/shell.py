"""The guarded shell: runs each command under a guard process (`shell.guard`) and shows how it ended.

Invariants: a command ends with this process, however it ends; a cancelled call returns when the whole process group has
ended; output goes to a file of its own, which only ever grows.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from buoy.core.ids import check_run_id
from buoy.core.limits import LOG_TAIL_BYTES, RESULT_FILE_BYTES_MAX
from buoy.core.step_logs import log_name
from buoy.errors import BadInput, CommandFailed
from buoy.host.cores import cores
from buoy.ports.host import GUARD_LOST, Clock, Command, CommandEnd

_GUARD = Path(__file__).with_name("supervisor.py")
T = TypeVar("T")
_LOST = "the guard of the command ended without a word; what was left of the command was killed"


class GuardedShell:
    """The shell of one process. Logs go to `folder/RUN/LEAF.ATTEMPT.log`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder.absolute()
        self._clock = clock

    @property
    def slots(self) -> int:
        return cores()

    async def run(self, command: Command) -> CommandEnd:
        folder = self._folder / check_run_id(command.run_id)
        log = folder / log_name(command.leaf, command.attempt)
        result = log.with_suffix(".result")
        began = self._clock.monotonic()
        try:
            # In threads, here and below: a disk that does not answer must not stop the other runs of this process.
            killed_before = await self._in_thread(lambda: _prepare(folder, result))
            guard = await self._start(command, log, result)
        except FileNotFoundError as error:
            raise not_started(f"directory {command.directory!r} is not there", error) from error
        except OSError as error:
            raise not_started(f"{error.strerror or error} ({error.filename or command.directory})", error) from error
        words = await _until_end(guard)
        kind, number, peak_kib, stopped, over_memory = _ended(words)
        tail, handed_on, killed = await self._in_thread(lambda: (_tail(log), read_result(result), oom_kills()))
        return CommandEnd(
            exit_code=number if kind == "code" else None,
            signal=number if kind == "signal" else None,
            peak_memory_bytes=peak_kib * 1024,
            duration_s=round(self._clock.monotonic() - began, 3),
            log=log.name,
            tail=tail,
            out_of_memory=killed > killed_before,
            result=handed_on,
            stopped=stopped,
            over_memory=over_memory,
        )

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        # A network disk may take minutes to answer.
        return await self._in_thread(partial(missing_paths, directory, paths))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def _start(self, command: Command, log: Path, result: Path) -> asyncio.subprocess.Process:
        guard = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(_GUARD),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            cwd=command.directory, env=environment(command, result), start_new_session=True,
        )  # fmt: skip
        assert guard.stdin is not None
        guard.stdin.write(guard_input(command, log))
        return guard


def guard_input(command: Command, log: Path) -> bytes:
    """What a guard reads first: the lengths of its orders, then the orders."""
    lock = log.with_name(f"{command.leaf.replace('/', '.')}.lock")
    limits = [str(round(command.grace_s * 1000)), str(command.memory_max_bytes)]
    data = [part.encode() for part in (*limits, str(lock), str(log), command.command)]
    return b"".join([f"{len(part):010}".encode() for part in data] + data)


def environment(command: Command, result: Path) -> dict[bytes, bytes]:
    """The environment of a command. In bytes: a value is UTF-8, whatever this process's locale says."""
    own = {**command.variables, "BUOY_RESULT_FILE": str(result)}
    return {**os.environb, **{name.encode(): value.encode() for name, value in own.items()}}


async def _until_end(guard: asyncio.subprocess.Process) -> list[str]:
    """What the guard said. A cancellation stops the command and is passed on when it has ended."""
    assert guard.stdout is not None
    reading = asyncio.ensure_future(guard.stdout.read())
    try:
        await asyncio.shield(reading)
    except asyncio.CancelledError:
        _say_stop(guard)
        while not reading.done():
            await asyncio.wait([reading])
        raise
    finally:
        await guard.wait()
        if guard.stdin is not None:
            guard.stdin.close()
    return reading.result().decode(errors="replace").splitlines()


def _say_stop(guard: asyncio.subprocess.Process) -> None:
    try:
        if guard.stdin is not None:
            guard.stdin.write(b"T")
    except (OSError, RuntimeError):
        return  # it has ended


def _ended(words: list[str]) -> tuple[str, int, int, bool, bool]:
    last = words[-1].split() if words else []
    if len(last) == 6 and last[0] == "ended":
        return last[1], int(last[2]), int(last[3]), last[4] == "1", last[5] == "1"
    for line in words:
        if line.startswith("started "):
            _kill_group(int(line.split()[1]))
    raise guard_lost(f": {words[-1]}" if words else "")


def guard_lost(said: str = "") -> CommandFailed:
    """The failure of a command whose guard was killed."""
    return CommandFailed(f"{_LOST}{said}", type=GUARD_LOST, kind="transient", facts={})


def missing_paths(directory: str, paths: Sequence[str]) -> list[str]:
    """Those of these files that are not there."""
    return [path for path in paths if not (Path(directory) / path).exists()]


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _prepare(folder: Path, result: Path) -> int:
    """Makes the places that a command writes to. How often the kernel has killed a process out of memory so far."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    result.unlink(missing_ok=True)
    return oom_kills()


def not_started(why: str, error: Exception) -> CommandFailed:
    """The failure of a command that no process was made for."""
    facts: dict[str, str | int | float | bool | None] = {"error": type(error).__name__}
    return CommandFailed(
        f"the command could not be started: {why}", type="NotStarted", kind="misconfiguration", facts=facts
    )


def _tail(log: Path) -> str:
    """The last lines of the output."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            return file.read(LOG_TAIL_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def read_result(path: Path) -> bytes | None:
    """What the command handed on, if it did."""
    try:
        # A named pipe that nothing writes to would keep its reader forever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BadInput("the result file is no regular file; write the result into $BUOY_RESULT_FILE itself")
            with os.fdopen(handle, "rb", closefd=False) as file:
                data = file.read(RESULT_FILE_BYTES_MAX + 1)
        finally:
            os.close(handle)
        if len(data) > RESULT_FILE_BYTES_MAX:
            raise BadInput(f"the result file has more than {RESULT_FILE_BYTES_MAX:,} bytes; store it elsewhere")
        return data
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"the result file cannot be read: {error}") from error


def oom_kills(own: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """How often the kernel killed a process of our control group out of memory; 0 if unknown."""
    try:
        for line in reversed(own.read_text().splitlines()):
            _, controllers, group = line.split(":", 2)
            # Version 1 has a tree for memory alone, version 2 one tree without names.
            first = controllers == "memory"
            tree, name = (groups / "memory", "memory.oom_control") if first else (groups, "memory.events")
            for events in (tree / group.lstrip("/") / name, tree / name):
                if (first or not controllers) and events.is_file():
                    lines = events.read_text().splitlines()
                    return sum(int(each.split()[1]) for each in lines if each.startswith("oom_kill "))
    except (OSError, ValueError, IndexError):
        return 0
    return 0
