"""A process of the program with a terminal of its own, and what a person would see on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable

from tests.patience import PATIENCE_S

_CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b.|[\r\n\b]|[^\x1b\r\n\b]+")


class Terminal:
    """The program on a real pseudo-terminal of that width."""

    def __init__(self, *words: str, columns: int = 120) -> None:
        self.seen = ""
        self.all = ""
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            # A shell that runs the tests in the background has them ignore Ctrl-C, and so would this process.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            environment = {**os.environ, "TERM": "xterm"}
            environment.pop("COLUMNS", None)
            os.execve(sys.executable, [sys.executable, "-m", "buoy", *words], environment)

    def until(self, text: str) -> None:
        self.until_true(lambda: text in self.seen)

    def until_true(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline, self.told()
            assert self._read() or what(), f"the process ended:\n{self.told()}"

    def told(self) -> str:
        """The beginning and the end of what was seen, for messages."""
        return self.seen if len(self.seen) < 4000 else f"{self.seen[:2500]} ... {self.seen[-1500:]}"

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self._end, text.encode())

    def close(self) -> int:
        """Waits for the end of the process; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, self.told()
        _, status = os.waitpid(self.pid, 0)
        os.close(self._end)
        return os.waitstatus_to_exitcode(status)

    def screen(self) -> list[str]:
        """The lines that stand on the terminal now, without its colours."""
        return screen(self.all)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._end], [], [], 0.2)
        try:
            chunk = os.read(self._end, 65_536) if ready else b"."
        except OSError:  # how Linux tells that the other end was closed
            return False
        text = chunk.decode(errors="replace") if ready else ""
        self.seen += text
        self.all += text
        return bool(chunk)


def screen(written: str) -> list[str]:
    """What a terminal shows after this was written to it. Knows only what the program uses."""
    lines, row, column = [""], 0, 0
    for found in _CONTROL.finditer(written):
        text, numbers, action = found.group(0), found.group(1), found.group(2)
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
        elif text == "\b":
            column = max(column - 1, 0)
        elif action == "A":
            row = max(row - int(numbers or 1), 0)
        elif action == "K" and numbers == "2":
            lines[row] = ""
        elif action == "K":
            lines[row] = lines[row][:column]
        elif not text.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
        lines += [""] * (row + 1 - len(lines))
    return [line.rstrip() for line in lines]
