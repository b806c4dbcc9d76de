"""Fresh interpreters: a Python of its own for the processes of scenarios, with a hash seed of its own.

An interpreter imports the workflow once and then forks one child for each process that a scenario asks for. It forks
only while it has a single thread: a copy of a process with several threads may deadlock. If the import left threads
behind, it does the errand itself and ends with it; the next errand gets another interpreter.
Invariants: nothing of the parent's memory reaches a child (globals, monkeypatches, threads); a child begins right after
the import.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

import msgspec

from buoy.engine.authoring.definitions import Workflow
from buoy.errors import BadInput
from buoy.testing.crashtest.errands import Errand, do_errand, write_errand
from buoy.testing.crashtest.places import Place, find_at

_OUT, _ERR = "out", "err"
_HASH_SEED = "PYTHONHASHSEED"
_HASH_SEEDS = 2**32 - 1
# The path comes first: Buoy itself may be found there only.
_BOOT = """\
import json, sys
home = sys.stdin.buffer.readline()
sys.path[:] = json.loads(home)["path"]
from buoy.testing.crashtest.fresh import serve
serve(home)
"""


class _Home(msgspec.Struct, frozen=True):
    """The first message to an interpreter."""

    path: list[str]
    place: Place
    # The descriptor for exit codes.
    answers: int
    # The variable as the parent had it: commands that steps start get that one.
    hash_seed: str | None


class Interpreter:
    """One interpreter, started at the latest when it is needed. Close it: that kills what it runs at that moment."""

    def __init__(self, place: Place, seed: str) -> None:
        digest = hashlib.sha256(seed.encode()).digest()
        self._hash_seed = 1 + int.from_bytes(digest[:4], "big") % _HASH_SEEDS
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1

    def run(self, errand: Errand, folder: Path) -> int:
        """Has the errand done in a child of its own. Its exit code; negative: the signal that ended it."""
        write_errand(errand, folder)
        try:
            process = self.start()
            _write(process, msgspec.json.encode(str(folder)))
            answer = os.read(self._answers, 64)
            code = int(answer) if answer else process.wait()
        except BaseException:
            self.close()
            raise
        if not answer:
            self.close()
        _print(folder / _OUT, sys.stdout)
        _print(folder / _ERR, sys.stderr)
        return code

    def start(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        self._answers, sink = os.pipe()
        try:
            process = self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and no shell
                [sys.executable, "-c", _BOOT],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0, pass_fds=(sink,), start_new_session=True,
                env={**os.environ, _HASH_SEED: str(self._hash_seed)},
            )  # fmt: skip
        finally:
            os.close(sink)
        _write(process, msgspec.json.encode(_Home(list(sys.path), self._place, sink, os.environ.get(_HASH_SEED))))
        return process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        os.close(self._answers)


def _write(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    # One that has ended says so by its exit code.
    with suppress(BrokenPipeError):
        process.stdin.write(line + b"\n")


def _print(file: Path, stream: TextIO) -> None:
    """What the child printed, here, as if it had been done here."""
    if file.exists():
        stream.write(file.read_text(errors="replace"))
        file.unlink()


# ---- in the interpreter


def serve(line: bytes) -> None:
    """Does one errand after the other, until the parent closes the pipe."""
    home = msgspec.json.decode(line, type=_Home)
    os.set_inheritable(home.answers, False)
    _restore_hash_seed(home.hash_seed)
    _redirect(2, os.devnull)
    find = _imported(home.place)
    for each in sys.stdin.buffer:
        folder = Path(msgspec.json.decode(each, type=str))
        if threading.active_count() > 1:
            _child(folder, find)
        pid = os.fork()
        if pid == 0:
            _child(folder, find)
        _, status = os.waitpid(pid, 0)
        os.write(home.answers, b"%d\n" % os.waitstatus_to_exitcode(status))


def _imported(place: Place) -> Callable[[], Workflow[..., Any]]:
    """Gives the workflow there, or raises what its import has raised."""
    try:
        found = find_at(place)
    except BadInput as problem:
        refusal = problem

        def refuse() -> NoReturn:
            raise refusal

        return refuse
    return lambda: found


def _child(folder: Path, find: Callable[[], Workflow[..., Any]]) -> NoReturn:
    _redirect(0, os.devnull)
    _redirect(1, str(folder / _OUT))
    _redirect(2, str(folder / _ERR))
    do_errand(folder, find)


def _redirect(descriptor: int, path: str) -> None:
    flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


def _restore_hash_seed(before: str | None) -> None:
    if before is None:
        os.environ.pop(_HASH_SEED, None)
    else:
        os.environ[_HASH_SEED] = before
