"""Outlets: standard output and error of a process that drives runs, whose reader may leave.

Invariant: user code that prints after its reader closed the pipe (`| head -1`, a log collector that ended) gets no
error. Otherwise the step that prints fails, and with it the run.
Absent on purpose: commands that only read. They end when their reader leaves.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Outlet(io.FileIO):
    """Writes to a pipe, and to the null device once the pipe has no reader."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            silence(self.fileno())
            return super().write(data)


def outlive_readers() -> None:
    """Lets this process continue when the readers of its standard output and error leave."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream: TextIO = getattr(sys, name)
        if _is_pipe(stream, number):
            try:
                stream.flush()
            except BrokenPipeError:
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
    raw = _Outlet(number, "w", closefd=False)
    # `python -u` and PYTHONUNBUFFERED: each write goes to the pipe at once.
    direct: bool = getattr(like, "write_through", False)
    return io.TextIOWrapper(
        raw if direct else io.BufferedWriter(raw),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=bool(like.line_buffering),
        write_through=direct,
    )


def _is_pipe(stream: TextIO, number: int) -> bool:
    """Whether it is the process's own stream, and a pipe. A test or an embedding program may have set another one."""
    try:
        if stream.fileno() != number:
            return False
    except (OSError, ValueError):
        return False
    mode = os.fstat(number).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
