"""The shell of a process under test: commands of specs really run, under their guards, and end with that process.

In this process a crash closes the pipes of the guards, as the kernel would; each then kills what it guards. The time
and memory that a command took are reported as zero: they differ every time, and are no part of an outcome.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from buoy.host.shell.shell import _GUARD, GuardedShell, environment, guard_input
from buoy.host.threads import SystemThreads
from buoy.ports.host import Clock, Command, CommandEnd
from buoy.testing.crashtest.watch import BodyWatch
from buoy.testing.skipping import Outside

# The variable in which a command finds its idempotency key. One that does not name it does not look at it.
KEY_VARIABLE = "BUOY_IDEMPOTENCY_KEY"
_SLOTS = 4

T = TypeVar("T")


class StageShell(GuardedShell):
    """Also tells the watch which commands look at their key."""

    # The same on every machine: how many commands run at once decides about the order of writes.
    slots = _SLOTS

    def __init__(self, folder: Path, clock: Clock, outside: Outside, watch: BodyWatch) -> None:
        super().__init__(folder, clock)
        self._outside = outside
        self._watch = watch
        self._guards: list[_Guard] = []
        self._jobs: set[Future[Any]] = set()

    async def run(self, command: Command) -> CommandEnd:
        if KEY_VARIABLE in command.command:
            self._watch.tell("key", run=command.run_id, leaf=command.leaf)
        with self._outside.job():
            end = await super().run(command)
        return replace(end, duration_s=0.0, peak_memory_bytes=0)

    async def missing(self, directory: str, paths: Sequence[str]) -> list[str]:
        with self._outside.job():
            return await super().missing(directory, paths)

    async def _start(self, command: Command, log: Path, result: Path) -> asyncio.subprocess.Process:
        guard = _Guard(command.directory, environment(command, result))
        self._guards.append(guard)
        guard.write(guard_input(command, log))
        return cast(asyncio.subprocess.Process, guard)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """In a thread that `drop` can wait for: it writes to a folder that is removed then."""
        job: Future[T] = Future()
        job.set_running_or_notify_cancel()

        def do() -> None:
            try:
                job.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                job.set_exception(error)

        self._jobs = {each for each in self._jobs if not each.done()} | {job}
        SystemThreads().run(do, "buoy-crashtest-shell")
        return await asyncio.wrap_future(job)

    def drop(self) -> None:
        """The process is dead: its commands end, too. When this returns nothing of them writes any more."""
        wait(self._jobs)
        for guard in self._guards:
            guard.drop()
        self._guards.clear()


class _Guard:
    """A guard process, as far as asyncio's look like it. A thread waits for it: its loop may die at any moment."""

    def __init__(self, directory: str, variables: dict[bytes, bytes]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own guard, and no shell
            [sys.executable, "-I", "-S", str(_GUARD)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=directory, env=variables, start_new_session=True, bufsize=0,
        )  # fmt: skip
        self.stdin = self.stdout = self
        self._said: asyncio.Future[bytes] | None = None

    def write(self, data: bytes) -> None:
        cast(Any, self._process.stdin).write(data)

    def close(self) -> None:
        cast(Any, self._process.stdin).close()

    async def read(self) -> bytes:
        loop = asyncio.get_running_loop()
        said: asyncio.Future[bytes] = loop.create_future()

        def listen() -> None:
            out = cast(Any, self._process.stdout)
            data: bytes = out.read()
            self._process.wait()
            out.close()
            loop.call_soon_threadsafe(_set_result, said, data)

        SystemThreads().run(listen, "buoy-crashtest-guard")
        return await said

    async def wait(self) -> int:
        """It has ended when `read` has."""
        return self._process.wait()

    def drop(self) -> None:
        self.close()
        self._process.wait()


def _set_result(said: asyncio.Future[bytes], data: bytes) -> None:
    if not said.done():
        said.set_result(data)
