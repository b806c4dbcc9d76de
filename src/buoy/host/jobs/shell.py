"""The shell of a job runner: one guard process for all commands (`guard`).

Invariants: a command ends with this process, however it ends. A cancelled call returns when the whole process tree has
ended. If the guard is lost, what it ran is killed by proof, and the next command gets a new guard.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from buoy.core.ids import check_run_id
from buoy.core.step_logs import log_name
from buoy.errors import CommandFailed
from buoy.host.cores import cores
from buoy.host.jobs.process_tree import identity, kill_all_of
from buoy.host.jobs.recent_ends import SUFFIX
from buoy.host.shell.shell import guard_lost, missing_paths, not_started, oom_kills, read_result
from buoy.ports.host import Command, CommandEnd

# The guard imports its two modules, and nothing else of the package.
_LAUNCH = (
    "import sys, types; package = types.ModuleType('buoy'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['buoy'] = package; from buoy.host.jobs.guard import main; main()"
)
_PACKAGE = str(Path(__file__).parents[2])
_READ_MAX = 1 << 16
_KILL_ROUNDS = 10
# Jobs of one commit begin within so many turns of the loop, or fewer (`engine.services.step_tasks`).
_TURNS_MAX = 8


class _Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command for the guard."""

    id: int
    command: str
    directory: str
    variables: dict[str, str]
    log: str
    result: str
    mark: str
    grace_s: float
    memory_max: int = 0
    log_max: int = 0
    again: bool = False
    lane: str = ""
    places: int = 0


class _EndReport(msgspec.Struct, frozen=True):
    """What the guard says about a command that has ended."""

    id: int
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
    duration_s: float = 0.0
    # In a file: the store and the job that it is about.
    mark: str = ""

    @property
    def by_itself(self) -> bool:
        return self.kind in ("code", "signal") and not self.stopped


class _Guard:
    """The guard process and the commands that it has."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ends: dict[int, asyncio.Future[_EndReport]] = {}
        self._identity = identity(process.pid)
        self._number = 0
        self._frames: list[bytes] = []
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(_EndReport)
        self._listening = asyncio.ensure_future(self._listen())

    @property
    def lost(self) -> bool:
        return self._listening.done()

    async def run(self, command: Command, log: str, result: str, mark: str) -> _EndReport:
        """How the command ended. A cancellation stops it, and is passed on, unless the command had ended before."""
        self._number += 1
        number, end = self._number, asyncio.get_running_loop().create_future()
        self._ends[number] = end
        self._send(_order(number, command, log, result, mark))
        try:
            report: _EndReport = await end
            return report
        except asyncio.CancelledError:
            if number not in self._ends:
                raise
            end = self._ends[number] = asyncio.get_running_loop().create_future()
            self._send({"id": number})
            while not end.done():
                await asyncio.wait([end])
            if end.exception() is None and end.result().by_itself:
                late: _EndReport = end.result()
                return late
            raise

    async def close(self) -> None:
        """Ends the guard, and with it what it still runs. This process has recorded, or spooled, all that it heard."""
        assert self._process.stdin is not None
        self._send({"bye": True})
        self._write_now()
        self._process.stdin.close()
        await asyncio.wait([self._listening])
        await self._process.wait()

    def hold(self) -> None:
        """What waits in lanes does not begin any more."""
        self._send({"hold": True})

    def _send(self, frame: _Order | dict[str, int | bool]) -> None:
        """What a few turns of the loop send in a row is one write, which wakes the guard once."""
        data = self._encoder.encode(frame)
        if not self._frames:
            asyncio.get_running_loop().call_soon(self._write, 0, 1)
        self._frames += (len(data).to_bytes(4, "big"), data)

    def _write(self, before: int, turn: int) -> None:
        """Writes after the first turn that sent nothing more. `before`: what was there at the turn before this one."""
        if len(self._frames) > before and turn < _TURNS_MAX:
            asyncio.get_running_loop().call_soon(self._write, len(self._frames), turn + 1)
        else:
            self._write_now()

    def _write_now(self) -> None:
        data, self._frames = b"".join(self._frames), []
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
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

    def _hear(self, report: _EndReport) -> None:
        end = self._ends.pop(report.id)
        if not end.done():
            end.set_result(report)

    def _lose(self) -> None:
        for _ in range(_KILL_ROUNDS):
            if not kill_all_of(self._identity):
                break  # what a process started before it was killed is found in the next round
        for end in self._ends.values():
            if not end.done():
                end.set_exception(guard_lost())
        self._ends.clear()


class JobShell:
    """The shell of one process. Logs go to `folder/RUN/LEAF.ATTEMPT.log`."""

    def __init__(self, folder: Path, store: str = "") -> None:
        self._folder = folder.absolute()
        self._store = store
        self._starting = asyncio.Lock()
        self._oom_kills: int | None = None
        self._guard: _Guard | None = None

    @property
    def slots(self) -> int:
        return cores()

    async def run(self, command: Command) -> CommandEnd:
        name = log_name(command.leaf, command.attempt)
        log = f"{self._folder}/{check_run_id(command.run_id)}/{name}"
        result = f"{log.removesuffix('.log')}.result"
        # A job without a limit costs no look at its start: the last one that was needed counts.
        if command.memory_max_bytes or (killed_before := self._oom_kills) is None:
            killed_before = self._oom_kills = await asyncio.to_thread(oom_kills)
        mark = f"{self._store} {command.variables.get('BUOY_IDEMPOTENCY_KEY', '')}"
        report = await asyncio.to_thread(_earlier_report, Path(result), mark) if command.again else None
        if report is None:
            guard = await self._live_guard()
            report = await guard.run(command, log, result, mark)
        if report.kind == "error":
            raise _refused(command, report)
        return CommandEnd(
            exit_code=report.number if report.kind == "code" else None,
            signal=report.number if report.kind == "signal" else None,
            peak_memory_bytes=report.peak_bytes,
            duration_s=report.duration_s,
            log=name,
            tail=report.tail,
            out_of_memory=await self._killed_since(killed_before) if report.number else False,
            result=await asyncio.to_thread(read_result, Path(result)) if report.result else None,
            stopped=report.stopped,
            over_memory=report.over_memory,
        )

    async def _killed_since(self, before: int) -> bool:
        killed = self._oom_kills = await asyncio.to_thread(oom_kills)
        return killed > before

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        return await asyncio.to_thread(missing_paths, directory, paths)

    def hold(self) -> None:
        """This process stops: nothing more begins. What waits is cancelled one by one."""
        if self._guard is not None and not self._guard.lost:
            self._guard.hold()

    async def close(self) -> None:
        """At the end of this process, when no command is wanted any more."""
        if self._guard is not None:
            await self._guard.close()

    async def _live_guard(self) -> _Guard:
        if self._guard is not None and not self._guard.lost:
            return self._guard
        async with self._starting:
            if self._guard is None or self._guard.lost:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", "-S", "-c", _LAUNCH, _PACKAGE,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
                )  # fmt: skip
                self._guard = _Guard(process)
            return self._guard


def _order(number: int, command: Command, log: str, result: str, mark: str) -> _Order:
    return _Order(
        number, command.command, command.directory, command.variables, log, result, mark, command.grace_s,
        memory_max=command.memory_max_bytes,
        log_max=command.log_max_bytes,
        again=command.again,
        lane=command.lane,
        places=command.places,
    )  # fmt: skip


def _earlier_report(result: Path, mark: str) -> _EndReport | None:
    """The last report of a dead runner's guard about this attempt."""
    try:
        report = msgspec.json.decode(result.with_suffix(SUFFIX).read_bytes(), type=_EndReport)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return report if report.mark == mark else None


def _refused(command: Command, report: _EndReport) -> CommandFailed:
    error = OSError(report.number, report.error, report.file)
    if isinstance(error, FileNotFoundError) and report.file == command.directory:
        return not_started(f"directory {command.directory!r} is not there", error)
    return not_started(f"{report.error} ({report.file or command.directory})", error)
