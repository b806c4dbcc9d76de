"""A real terminal: the live view, and questions that are asked on it."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from .conftest import FLOWS, PATIENCE_S, Buoy


class Terminal:
    """A process of the program with a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.seen = ""
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
            os.execve(sys.executable, [sys.executable, "-m", "buoy", *words], environment)

    def until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen[-2000:]
            self._read()

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self._end, text.encode())

    def close(self) -> int:
        while self._read():
            continue
        _, status = os.waitpid(self.pid, 0)
        os.close(self._end)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._end], [], [], 0.2)
        try:
            chunk = os.read(self._end, 65_536) if ready else b"."
        except OSError:  # how Linux tells that the other end was closed
            return False
        self.seen += chunk.decode(errors="replace") if ready else ""
        return bool(chunk)


@pytest.fixture
def words(buoy: Buoy) -> Iterator[list[str]]:
    yield ["run", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1", "--store", buoy.store]


def test_a_question_is_asked_on_the_terminal_and_asked_again(words: list[str]) -> None:
    terminal = Terminal(*words)
    terminal.until("yes or no: ")
    terminal.type("perhaps\n")
    terminal.until("not accepted: expected yes or no, found 'perhaps'")
    terminal.type("y\n")
    terminal.until('"1 lamp"')
    assert terminal.close() == 0


def test_an_answer_from_elsewhere_takes_the_question_back(buoy: Buoy, words: list[str]) -> None:
    terminal = Terminal(*words)
    terminal.until("yes or no: ")
    buoy("answer", "s1", "yes")
    terminal.until('"1 lamp"')
    assert terminal.close() == 0


def test_an_interrupt_while_a_question_stands_gives_the_run_back(buoy: Buoy, words: list[str]) -> None:
    terminal = Terminal(*words)
    terminal.until("yes or no: ")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.until("go on with it: buoy run")
    assert terminal.close() == 4
    assert buoy.json("show", "s1")["health"] == "idle"


def test_the_live_view_shows_the_step_and_its_progress(buoy: Buoy) -> None:
    given = ["--arg", f"witness={buoy.witness}", "--arg", "count=2", "--arg", "work_s=0.5"]
    terminal = Terminal("run", f"{FLOWS}:parts", *given, "--store", buoy.store)
    terminal.until("step part (attempt 1)")
    terminal.until("1 of 10 (10%), part 1")
    assert terminal.close() == 0
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")
