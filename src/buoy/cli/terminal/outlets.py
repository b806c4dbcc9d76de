"""Outlets: standard output and error of a process that drives runs, whose reader may leave and whose disk may be full.

Invariants: user code that prints after its reader closed the pipe (`| head -1`, a log collector that ended), or to a
full disk, gets no error. Otherwise the step that prints fails, and with it the run. Text that found no room is counted
where it is missing, and the other stream says so at once.
Absent on purpose: commands that only read. They end when their reader leaves, or when their output finds no room.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# No room on the disk: for all, for this user, or for this file.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class NoRoom(OSError):
    """The disk of standard output is full."""


class _Strict(io.FileIO):
    """Says that it was this output that found no room, and no other file of the command."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise NoRoom(error.errno, error.strerror) from error
            raise


class _Outlet(io.FileIO):
    """Writes to a pipe, and to the null device once the pipe has no reader. Counts what a full disk did not take."""

    _missing = 0
    _why = ""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            if self._missing:
                super().write(f"[{self._missing:,} bytes of output are missing here: {self._why}]\n".encode())
                self._missing = 0
            return super().write(data)
        except BrokenPipeError:
            silence(self.fileno())
            return super().write(data)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return self._without_room(memoryview(data).nbytes, error)

    def _without_room(self, count: int, error: OSError) -> int:
        first, self._why = not self._missing, str(error.strerror)
        self._missing += count
        if first:
            _say_on_the_other(self.fileno(), no_room(self.fileno(), error))
        return count


def no_room(number: int, error: OSError) -> str:
    """What is wrong with an output whose disk is full, and what to do."""
    name = "standard error" if number == 2 else "standard output"
    return f"{name} cannot be written: {error.strerror}; make room, or send it elsewhere"


def _say_on_the_other(number: int, text: str) -> None:
    """Past the other outlet, which may have no room either: then no place is left to say it."""
    try:
        os.write(1 if number == 2 else 2, f"trouble: {text}\n".encode())
    except OSError as error:
        if error.errno not in _NO_ROOM | {errno.EPIPE, errno.EBADF, errno.EAGAIN}:
            raise


def name_lack_of_room() -> None:
    """Lets a full disk of standard output raise `NoRoom`, in a command that only reads."""
    if _may_fail(sys.stdout, 1):
        sys.stdout.flush()
        sys.stdout = _stream(_Strict(1, "w", closefd=False), like=sys.stdout)


def outlive_readers() -> None:
    """Lets this process continue when its standard output and error lose their readers, or their disk is full."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream: TextIO = getattr(sys, name)
        if _may_fail(stream, number):
            try:
                stream.flush()
            except OSError as error:
                if not isinstance(error, BrokenPipeError) and error.errno not in _NO_ROOM:
                    raise
                silence(number)
                stream.flush()
            setattr(sys, name, outlet(number, like=stream))


def silence(number: int) -> None:
    """Puts the null device in the place of a pipe, also for the commands that a step starts from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def outlet(number: int, *, like: TextIO) -> TextIO:
    """A text stream on that descriptor, with the encoding and buffering of another one."""
    return _stream(_Outlet(number, "w", closefd=False), like=like)


def _stream(raw: io.FileIO, *, like: TextIO) -> TextIO:
    # `python -u` and PYTHONUNBUFFERED: each write goes to the pipe at once.
    direct: bool = getattr(like, "write_through", False)
    return io.TextIOWrapper(
        raw if direct else io.BufferedWriter(raw),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=bool(like.line_buffering),
        write_through=direct,
    )


def _may_fail(stream: TextIO, number: int) -> bool:
    """Whether it is the process's own stream, and no terminal. A test or an embedding program may have set another."""
    try:
        if stream.fileno() != number:
            return False
    except (OSError, ValueError):
        return False
    return not os.isatty(number)
