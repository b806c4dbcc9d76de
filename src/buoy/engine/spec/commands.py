"""Spec commands: the body of a `run:` step: files before, the command, files after, and how it ended in words.

Invariants: the report of a command's end is unambiguous: an exit code, or the name of a signal. A kill because of low
memory is reported as such where the system reveals it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from buoy.core.ids import LeafId
from buoy.core.limits import KILL_ECHO_S, STOP_ECHO_S
from buoy.core.spec.problems import shown
from buoy.engine.authoring.context import GivenBack, step_context
from buoy.errors import BadInput, CommandFailed
from buoy.ports.host import GUARD_LOST, Command, CommandEnd, Shell

Facts: TypeAlias = dict[str, str | int | float | bool | None]

# Signals that stop a whole service, or all that runs in a terminal.
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MISCONFIGURED = {126: "the command cannot be executed", 127: "the command was not found"}


class Commander:
    """Runs the commands of specs."""

    def __init__(self, shell: Shell, stopping: asyncio.Event) -> None:
        self._shell = shell
        self._stopping = stopping

    @property
    def slots(self) -> int:
        return self._shell.slots

    async def run(
        self,
        command: str,
        directory: str,
        variables: dict[str, str],
        inputs: list[str],
        outputs: list[str],
        grace_s: float = 5.0,
    ) -> dict[str, Any]:
        """The body. Its arguments are those in the log, by these names."""
        context = step_context("a command")
        need_files(await self.missing(directory, inputs), directory)
        order = Command(
            run_id=context.run_id,
            leaf=LeafId(context.leaf),
            attempt=context.attempt,
            command=command,
            directory=directory,
            variables={**variables, **identity(context.run_id, context.leaf, context.attempt, context.key)},
            grace_s=grace_s,
        )
        return await self.execute(order, outputs)

    async def execute(self, order: Command, outputs: Sequence[str] = (), known: Facts | None = None) -> dict[str, Any]:
        """Runs a command to its end. `known`: facts to add to its result or error."""
        end = await self._end_of(order)
        facts = {**_facts(end), **(known or {})}
        if end.exit_code != 0:
            raise _failure(end, facts)
        check_made(await self.missing(order.directory, outputs), order.directory, facts)
        return {**facts, **({} if end.result is None else {"result": _read_result(end.result)})}

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        """Those of these files that are not there. Most steps name none: then no disk is asked."""
        return await self._shell.missing(directory, list(paths)) if paths else []

    async def _end_of(self, command: Command) -> CommandEnd:
        """How the command ended; `GivenBack` if it was the stop of this whole process with all that it started."""
        try:
            end = await self._shell.run(command)
        except CommandFailed as error:
            await self._give_back_if_stopped(STOP_ECHO_S if error.type == GUARD_LOST else 0.0)
            raise
        if end.exit_code != 0 or end.stopped:
            await self._give_back_if_stopped(_echo_s(end))
        return end

    async def _give_back_if_stopped(self, patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await self._stopping.wait()
        except TimeoutError:
            return
        except asyncio.CancelledError:
            # The step's own time is up, or its run is cancelled: the command had ended before that.
            return
        raise GivenBack


def identity(run_id: str, leaf: str, attempt: int, key: str) -> dict[str, str]:
    """What a command can read about itself."""
    step, _, module = leaf.rpartition("#")[0].partition("/")
    return {
        "BUOY_RUN_ID": run_id,
        "BUOY_STEP": step,
        "BUOY_MODULE": module,
        "BUOY_LEAF": leaf,
        "BUOY_ATTEMPT": str(attempt),
        "BUOY_IDEMPOTENCY_KEY": key,
    }


def _echo_s(end: CommandEnd) -> float:
    """How long the stop of this process may lag behind such an end."""
    number = _signal_number(end)
    if end.stopped or number in _STOPS:
        return STOP_ECHO_S
    return KILL_ECHO_S if number == signal.SIGKILL else 0.0


def _facts(end: CommandEnd) -> Facts:
    facts: Facts = {
        "exit_code": end.exit_code,
        "duration_s": end.duration_s,
        "peak_memory_bytes": end.peak_memory_bytes,
        "log": end.log,
    }
    number = _signal_number(end)
    return facts if number is None else {**facts, "signal": signal_name(number)}


def _signal_number(end: CommandEnd) -> int | None:
    """A shell tells the signal that ended its child as 128 and the number."""
    if end.signal is not None:
        return end.signal
    code = end.exit_code or 0
    return code - 128 if 128 < code <= 128 + 64 else None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _failure(end: CommandEnd, facts: Facts) -> CommandFailed:
    number = _signal_number(end)
    kind, name = "unknown", "ExitCode"
    if end.signal is not None:
        name, what = "Killed", f"ended by {signal_name(end.signal)}"
    else:
        said = f", which is the shell's word for {signal_name(number)}" if number is not None else ""
        why = f": {_MISCONFIGURED[end.exit_code]}" if end.exit_code in _MISCONFIGURED else ""
        what = f"exit code {end.exit_code}{said}{why}"
        kind = "misconfiguration" if end.exit_code in _MISCONFIGURED else "unknown"
    if number == signal.SIGKILL:
        name, kind = "Killed", "unknown"
        if end.over_memory:
            name, kind, what = "OutOfMemory", "resource", "killed for using more memory than it may"
        elif end.out_of_memory:
            name, kind = "OutOfMemory", "resource"
            what += "; the kernel killed something here for lack of memory during that time"
        else:
            what += "; Buoy did not send it: perhaps too little memory, a limit, or a person"
    peak = f"{end.peak_memory_bytes / 2**20:.0f} MiB"
    text = f"{what} after {end.duration_s:g} s, peak memory {peak}, log {end.log}"
    tail = f"\n{end.tail}" if end.tail else ""
    return CommandFailed(text + tail, type=name, kind=kind, facts=facts)


def _read_result(data: bytes) -> Any:
    """What the command wrote into its result file: JSON, or else a text."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode(errors="replace").strip()


def missing_files(directory: str, paths: list[str]) -> list[str]:
    """Those of these files that are not there. It blocks: for the threads of plain functions only."""
    return [path for path in paths if not (Path(directory) / path).exists()]


def need_files(missing: list[str], directory: str) -> None:
    """Refuses to begin without the files that a step says it reads."""
    if missing:
        raise BadInput(f"input file {shown(missing[0])} is not there, in {directory}")


def check_made(missing: list[str], directory: str, facts: Facts) -> None:
    """A step that says it makes a file has not completed without it."""
    if missing:
        text = f"output file {shown(missing[0])} was not made, in {directory}"
        raise CommandFailed(text, type="OutputMissing", kind="unknown", facts=facts)
