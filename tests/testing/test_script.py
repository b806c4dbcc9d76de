"""Scripts: what is said to which question, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.testing import LocalApp, Script, read_script


@buoy.workflow
async def interview(questions: list[str]) -> list[Any]:
    return [await buoy.ask(question) for question in questions]


@buoy.workflow
async def listens(times: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(times):
        try:
            found.append(await buoy.wait_signal("news", timeout="1h"))
        except TimeoutError:
            found.append("nothing")
    return found


def test_the_nth_question_of_a_title_gets_the_nth_answer_and_the_last_serves_the_rest(buoy_app: LocalApp) -> None:
    script = [{"on": "who?", "answer": "a"}, {"on": "who?", "answer": "b"}, {"on": "why?", "answer": "c"}]
    assert buoy_app.run_with(script, interview, ["who?", "why?", "who?", "who?"]) == ["a", "c", "b", "b"]


def test_a_leaf_is_more_exact_than_a_title(buoy_app: LocalApp) -> None:
    script = [{"on": "who?", "answer": "a"}, {"on": "ask#2", "answer": "second"}]
    assert buoy_app.run_with(script, interview, ["who?", "who?", "who?"]) == ["a", "second", "a"]


def test_a_signal_is_sent_once_per_entry(buoy_app: LocalApp) -> None:
    script = [{"on": "signal news", "payload": 1}, {"on": "signal news", "payload": 2, "after": "30m"}]
    assert buoy_app.run_with(script, listens, 3) == [1, 2, "nothing"]


def test_a_signal_may_come_too_late_or_from_the_start(buoy_app: LocalApp) -> None:
    assert buoy_app.run_with([{"on": "signal news", "payload": 1, "after": "2h"}], listens, 1) == ["nothing"]
    assert buoy_app.run_with([{"on": "start", "signal": "news", "payload": 5}], listens, 1) == [5]


def test_a_file_is_yaml_or_json(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text("- on: Ship it?\n  answer: true\n  after: 2h\n- {on: signal packed, payload: {boxes: 2}}\n")
    assert len(read_script(file)) == 2
    file.write_text('[{"on": "Ship it?", "answer": true}]')
    assert len(read_script(file)) == 1
    file.write_text("")
    assert len(read_script(file)) == 0


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"answer": 1}, "entry 1: an entry says on what"),
        ("yes", "entry 1: an entry says on what"),
        ({"on": "x"}, "needs an answer, or a signal"),
        ({"on": "x", "answer": 1, "signal": "y"}, "needs an answer, or a signal"),
        ({"on": "x", "answer": 1, "then": 2}, "then is unknown"),
        ({"on": "x", "answer": 1, "after": "soon"}, "is not a duration"),
    ],
)
def test_an_entry_that_says_nothing_is_refused(entry: Any, words: str) -> None:
    with pytest.raises(buoy.BadInput, match=words):
        Script([entry])


@pytest.mark.parametrize(("text", "words"), [("a: 1", "must be a list"), ("[", "is no YAML"), (None, "cannot be read")])
def test_a_file_that_is_no_script_is_refused_in_one_line(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "script.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(buoy.BadInput, match=words) as found:
        read_script(file)
    assert "\n" not in str(found.value)
