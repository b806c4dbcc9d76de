"""A real terminal: the live view, and questions that are asked on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from buoy.cli.terminal.program import go

from .conftest import ASKING, FLOWS, Buoy
from .terminal import Terminal


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
    assert "answered elsewhere: yes" in terminal.screen()


def test_a_run_goes_on_after_its_question_was_answered_elsewhere(buoy: Buoy) -> None:
    terminal = Terminal("run", f"{ASKING}:asked_then_signalled", "--id", "a1", "--store", buoy.store)
    terminal.until("yes or no: ")
    terminal.type("ye")  # half a line that is never sent must not become part of a later answer
    buoy("answer", "a1", "no")
    terminal.until("answered elsewhere: no")
    terminal.until("signal 'packed'")
    buoy("signal", "a1", "packed")
    terminal.until("a text: ")
    terminal.type("bye\n")
    terminal.until('[false, "bye"]'.replace(" ", ""))
    assert terminal.close() == 0
    assert "Traceback" not in terminal.all


def test_a_question_whose_time_is_over_is_taken_back(buoy: Buoy) -> None:
    terminal = Terminal("run", f"{ASKING}:impatient", "--id", "i1", "--store", buoy.store)
    terminal.until("yes or no: ")
    terminal.until("the question was withdrawn")
    terminal.until("signal 'packed'")
    buoy("signal", "i1", "packed")
    terminal.until('"too late"')
    assert terminal.close() == 0
    assert "Traceback" not in terminal.all


def test_a_cancellation_from_elsewhere_takes_the_question_back(buoy: Buoy, words: list[str]) -> None:
    terminal = Terminal(*words)
    terminal.until("yes or no: ")
    buoy("cancel", "s1", "--reason", "ordered twice")
    terminal.until("error: run s1 was cancelled: ordered twice")
    assert terminal.close() == 3
    assert "the question was withdrawn" in terminal.all
    assert "Traceback" not in terminal.all


def test_a_pause_from_elsewhere_takes_the_question_back_until_the_run_is_resumed(buoy: Buoy, words: list[str]) -> None:
    terminal = Terminal(*words)
    terminal.until("yes or no: ")
    buoy("pause", "s1", "--reason", "wait for ann")
    terminal.until("the run is paused: wait for ann")
    terminal.seen = ""
    buoy("resume", "s1")
    terminal.until("yes or no: ")
    terminal.type("yes\n")
    terminal.until('"1 lamp"')
    assert terminal.close() == 0
    assert "Traceback" not in terminal.all


def test_an_interrupt_while_a_question_stands_gives_the_run_back(buoy: Buoy, words: list[str]) -> None:
    terminal = Terminal(*words)
    terminal.until("yes or no: ")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.until("continue it: buoy run")
    assert terminal.close() == 4
    assert buoy.json("show", "s1")["health"] == "idle"


def test_the_live_view_leaves_question_and_answer_on_the_screen(buoy: Buoy) -> None:
    terminal = Terminal("run", f"{ASKING}:chosen_then_signalled", "--id", "c1", "--store", buoy.store)
    terminal.until("one of load, skip: ")
    terminal.type("1\n")
    terminal.until("signal 'packed'")
    buoy("signal", "c1", "packed")
    terminal.until('"load"')
    assert terminal.close() == 0
    shown = terminal.screen()
    start = shown.index("What now?")
    assert shown[start : start + 4] == ["What now?", "  1. load", "  2. skip", "one of load, skip: 1"]


def test_an_interrupt_ends_the_prompt_of_answer(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    terminal = Terminal("answer", "s1", "--store", buoy.store)
    terminal.until("yes or no: ")
    terminal.type("\x03")
    assert terminal.close() == 130
    assert "Traceback" not in terminal.all


def test_answer_asks_again_after_a_wrong_answer(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    terminal = Terminal("answer", "s1", "--store", buoy.store)
    terminal.until("yes or no: ")
    terminal.type("perhaps\n")
    terminal.until("not accepted: expected yes or no, found 'perhaps'")
    terminal.until("yes or no: ")
    terminal.type("yes\n")
    terminal.until("answered")
    assert terminal.close() == 0


def test_the_end_of_the_input_ends_the_prompt_of_answer(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    terminal = Terminal("answer", "s1", "--store", buoy.store)
    terminal.until("yes or no: ")
    terminal.type("\x04")
    terminal.until("error: the input ended before 'Ship it?' was answered")
    assert terminal.close() == 2


def test_the_live_view_shows_the_step_and_its_progress(buoy: Buoy) -> None:
    given = ["--arg", f"witness={buoy.witness}", "--arg", "count=2"]
    with buoy.held(1):
        terminal = Terminal("run", f"{FLOWS}:parts", *given, "--store", buoy.store)
        terminal.until("step part (attempt 1)")
        terminal.until("1 of 10 (10%), part 1")
    assert terminal.close() == 0
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")


def test_a_form_is_asked_field_by_field_until_it_fits(buoy: Buoy) -> None:
    terminal = Terminal("run", f"{ASKING}:filled", "--id", "f1", "--store", buoy.store)
    terminal.until("Approve the answer? (approved), yes or no: ")
    terminal.type("perhaps\n")
    terminal.until("not accepted: approved: expected yes or no, found 'perhaps'")
    terminal.until("yes or no: ")
    terminal.type("yes\n")
    terminal.until("size, one of small, large: ")
    terminal.type("2\n")
    terminal.until("count, a whole number [1]: ")
    terminal.type("\n")
    terminal.until("note, a text, may be left empty: ")
    terminal.type("\n")
    terminal.until("not accepted: count: 1 is less than the minimum of 3")
    terminal.until("(approved), yes or no [true]: ")
    terminal.type("\n")
    terminal.until("[large]: ")
    terminal.type("\n")
    terminal.until("[1]: ")
    terminal.type("2\n")
    terminal.until("not accepted: count: 2 is less than the minimum of 3")
    terminal.until("[1]: ")
    terminal.type("4\n")
    terminal.until("may be left empty: ")
    terminal.type("\n")
    terminal.until('{"approved":true,"size":"large","count":4}')
    assert terminal.close() == 0


def test_every_signal_wakes_the_loop_of_a_command() -> None:
    """Else an interrupt right before the loop begins to wait is not seen until something else happens."""

    async def command() -> int:
        return signal.set_wakeup_fd(-1)

    assert go(command()) != -1
