"""Child processes: further processes of this program, each joined to its parent by a socket.

The socket serves both directions: the parent asks for a stop, the child announces itself, and the kernel closes it when
either side ends, however it ends.
Invariants: only parent and child hold the two ends, and no process that user code starts inherits one. A child is the
leader of its own process group: a Ctrl-C at the terminal reaches the parent alone, and the child hears of it once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from buoy.errors import BadInput, Unavailable
from buoy.host.threads import SystemThreads
from buoy.ports.processes import MEMBER_OPTION, PARENT_ENDED

_LINE_BYTES_MAX = 512
_LAST_WORD_S = 1.0
_AT_ONCE_S = 2.0


class SystemChild:
    """A process that this one started."""

    def __init__(
        self, process: asyncio.subprocess.Process, link: socket.socket, on_ready: Callable[[str], None]
    ) -> None:
        self._process = process
        self._link = link
        self._on_ready = on_ready
        self._hearing = asyncio.ensure_future(self._hear())
        self.pid = process.pid

    def ask_to_stop(self, signal: str) -> None:
        self._send(f"stop {signal}")

    def end_at_once(self, signal: str) -> None:
        self._send(f"end {signal}")
        # One that is stopped (SIGSTOP), or held in C code, does not hear it.
        asyncio.get_running_loop().call_later(_AT_ONCE_S, self._kill)

    async def wait(self) -> int:
        code = await self._process.wait()
        # The socket ends with the process, unless user code forked another one that holds it.
        await asyncio.wait([self._hearing], timeout=_LAST_WORD_S)
        self._hearing.cancel()
        self._link.close()
        return code

    def _kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    def _send(self, words: str) -> None:
        try:
            self._link.send(words.encode() + b"\n")
        except OSError:
            return  # the child has ended, which `wait` tells

    async def _hear(self) -> None:
        loop, data = asyncio.get_running_loop(), b""
        while len(data) < _LINE_BYTES_MAX:
            try:
                part = await loop.sock_recv(self._link, _LINE_BYTES_MAX)
            except OSError:
                return  # reset: the child has ended
            data += part
            if b"\n" in data:
                self._on_ready(data.partition(b"\n")[0].decode(errors="replace"))
                return
            if not part:
                return


class SystemChildren:
    """Starts `python -m buoy` with this interpreter. Output goes where the parent's goes."""

    async def start(self, words: Sequence[str], number: int, on_ready: Callable[[str], None]) -> SystemChild:
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            verb, *rest = words
            member = f"{number}:{theirs.fileno()}"
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "buoy", verb, MEMBER_OPTION, member, *rest,
                stdin=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),), process_group=0,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise Unavailable(f"no process could be started: {error.strerror or error}; free memory or PIDs") from error
        finally:
            theirs.close()
        return SystemChild(process, ours, on_ready)


class SystemParent:
    """The parent's socket. A thread of its own waits at it, so that a held event loop does not delay it."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        try:
            self._link = socket.socket(fileno=descriptor)
        except OSError as error:
            raise BadInput(f"{MEMBER_OPTION} {descriptor}: no socket of a parent; leave it out") from error
        self._lock = threading.Lock()
        self._on_stop: Callable[[str], None] | None = None
        self._end_within_s = 0.0
        SystemThreads().run(self._wait, "buoy-parent")

    def announce(self, name: str) -> None:
        try:
            self._link.send(name.encode() + b"\n")
        except OSError:
            return  # the parent has ended, which the thread hears

    def listen(self, on_stop: Callable[[str], None], *, end_within_s: float) -> None:
        with self._lock:
            self._on_stop, self._end_within_s = on_stop, end_within_s

    def _wait(self) -> None:
        with self._link.makefile("r") as words:
            for line in words:
                kind, _, name = line.strip().partition(" ")
                if kind == "end":
                    _end(128 + signal.Signals[name].value)
                self._stop(name)
        self._stop(PARENT_ENDED)
        threading.Event().wait(self._end_within_s)
        # What still executes does not listen. The end of this process is what frees its runs.
        _end(1)

    def _stop(self, name: str) -> None:
        with self._lock:
            if self._on_stop is None:
                _end(0)
            self._on_stop(name)


def _end(code: int) -> NoReturn:
    os._exit(code)
