"""Answers, signals and requests."""

from __future__ import annotations

import json
import shlex

from .conftest import ASKING, FLOWS, Buoy, Spawn, until


def waiting_ship(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp", "count": 2}', "--id", "s1")
    buoy.drive()


def test_a_wrong_answer_is_refused_and_the_question_stays_open(buoy: Buoy) -> None:
    waiting_ship(buoy)
    assert "expected yes or no, found 'perhaps'" in buoy("answer", "s1", "perhaps", code=2).stderr
    assert buoy.json("show", "s1")["document"]["status"] == "awaiting_input"
    assert "no worker is alive; start one with `buoy worker FILE.py`" in buoy("answer", "s1", "yes").stdout
    buoy.drive()
    assert buoy("result", "s1").stdout == '"2 lamp"\n'


def test_a_second_answer_is_refused(buoy: Buoy) -> None:
    waiting_ship(buoy)
    buoy("answer", "s1", "yes")
    assert "was answered already" in buoy("answer", "s1", "no", code=2).stderr


def test_an_unknown_question_is_refused_with_the_open_ones(buoy: Buoy) -> None:
    waiting_ship(buoy)
    assert "open: s1/ask#1/0" in buoy("answer", "s1", "yes", "--question", "s1/other#1/0", code=2).stderr


def test_a_refused_answer_has_a_stable_reason(buoy: Buoy) -> None:
    waiting_ship(buoy)
    assert buoy.json("answer", "s1", "yes", "--question", "nope", code=2)["error"]["reason"] == "never_asked"
    buoy("answer", "s1", "yes")
    assert buoy.json("answer", "s1", "no", code=2)["error"]["reason"] == "answered"
    buoy.drive()
    assert buoy.json("answer", "s1", "no", code=2)["error"]["reason"] == "none_open"
    assert buoy.json("answer", "s1", "no", "--question", "s1/ask#1/0", code=2)["error"]["reason"] == "answered"


def test_without_a_terminal_an_answer_must_be_named(buoy: Buoy) -> None:
    waiting_ship(buoy)
    assert "no answer to 'Ship it?'; give one: yes or no" in buoy("answer", "s1", code=2).stderr


def test_all_kinds_of_questions_can_be_answered_by_command(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:several", "--id", "s1")
    buoy.drive()
    assert "has several open questions, say which" in buoy("answer", "s1", "red", code=2).stderr
    asked = {leaf["question"]["title"]: leaf["question_id"] for leaf in buoy.json("show", "s1")["document"]["open"]}
    buoy("answer", "s1", "green", "--question", asked["Which colour?"], code=2)
    buoy("answer", "s1", "red", "--question", asked["Which colour?"])
    buoy("answer", "s1", "S, L", "--question", asked["Which sizes?"])
    buoy("answer", "s1", "be careful, please", "--question", asked["Any words?"])
    assert (
        "'town' is a required" in buoy("answer", "s1", "--form", "{}", "--question", asked["Where to?"], code=2).stderr
    )
    assert "is not JSON" in buoy("answer", "s1", "{town", "--question", asked["Where to?"], code=2).stderr
    buoy("answer", "s1", "--form", '{"town": "Rome"}', "--question", asked["Where to?"])
    buoy.drive()
    assert json.loads(buoy("result", "s1").stdout) == ["red", ["S", "L"], "be careful, please", {"town": "Rome"}]


def test_the_commands_that_why_proposes_for_questions_are_accepted_as_they_stand(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:several", "--id", "s1")
    buoy.drive()
    lines = [line for line in buoy("why", "s1").stdout.splitlines() if "buoy answer" in line]
    commands = [shlex.split(line[line.index("buoy answer") :])[1:] for line in lines]
    assert len(commands) == 4
    for words in commands:
        buoy(*words[: words.index("--store")] if "--store" in words else words)
    buoy.drive()
    assert json.loads(buoy("result", "s1").stdout)[3] == {"town": "TEXT"}


def test_a_signal_is_kept_and_its_twin_does_nothing(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:signalled", "--id", "w1")
    first = buoy.json("signal", "w1", "packed", '{"boxes": 2}', "--dedupe", "scan-1")
    again = buoy.json("signal", "w1", "packed", '{"boxes": 3}', "--dedupe", "scan-1")
    assert (first["duplicate"], again["duplicate"], again["message"]) == (False, True, first["message"])
    buoy.drive()
    assert json.loads(buoy("result", "w1").stdout) == {"boxes": 2}
    # The sender whose answer was lost learns that the run has it, also if the signal has ended the run.
    late = buoy.json("signal", "w1", "packed", '{"boxes": 2}', "--dedupe", "scan-1")
    assert (late["duplicate"], late["message"]) == (True, first["message"])
    assert "nothing was sent" in buoy("signal", "w1", "packed", "--dedupe", "scan-2", code=2).stderr


def test_a_payload_that_is_no_json_is_refused(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:signalled", "--id", "w1")
    assert "PAYLOAD_JSON is not JSON" in buoy("signal", "w1", "packed", "{boxes", code=2).stderr


def test_a_waiting_run_is_paused_resumed_and_cancelled_without_a_worker(buoy: Buoy) -> None:
    waiting_ship(buoy)
    assert buoy("pause", "s1", "--reason", "lunch").stdout == "run s1 is paused\n"
    assert "paused already" in buoy("pause", "s1", code=2).stderr
    told = buoy("why", "s1").stdout
    assert "a person or a program asked for it" in told
    assert "lunch" in told
    resumed = buoy.json("resume", "s1")
    assert (resumed["done"], resumed["text"]) == (True, "run s1 is awaiting_input")
    assert [leaf["question_id"] for leaf in resumed["questions"]] == ["s1/ask#1/0"]
    # Nothing is wrong with it and it is not paused: it says what it waits for.
    again = buoy("resume", "s1").stdout
    assert "it awaits an answer" in again and "buoy answer s1 yes --question 's1/ask#1/0'" in again
    assert buoy("cancel", "s1").stdout == "run s1 is cancelled\n"
    assert "is cancelled already" in buoy("cancel", "s1", code=2).stderr
    assert "nothing was sent" in buoy("signal", "s1", "packed", code=2).stderr


def test_all_requests_to_an_unknown_run_are_refused(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    for words in (["answer", "x", "yes"], ["signal", "x", "n"], ["pause", "x"], ["resume", "x"], ["cancel", "x"]):
        assert "no run 'x'" in buoy(*words, code=2).stderr


def test_a_run_that_a_terminal_drives_needs_no_worker_while_it_is_paused(buoy: Buoy, spawn: Spawn) -> None:
    """`buoy run` holds no paused run, and takes it again as soon as it can continue."""
    process = spawn("run", f"{ASKING}:asked_then_signalled", "--id", "a1")
    until(lambda: "Ship it?" in process.output(), process)
    buoy("pause", "a1")
    until(lambda: buoy.json("ps", "--all")["runs"][0]["document"]["status"] == "paused", process)
    assert "no worker" not in buoy("why", "a1").stdout
    assert "no worker" not in buoy("answer", "a1", "yes").stderr
    found = buoy.json("why", "a1")
    assert (found["health"], found["wrong"]) == ("idle", [])
    assert "no worker" not in buoy("resume", "a1").output
    until(lambda: "signal waited" in process.output(), process)


def test_plain_words_for_a_form_are_refused_with_an_example(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:several", "--id", "s1")
    buoy("worker", str(FLOWS), "--until-idle")
    told = buoy("answer", "s1", "Kiel", "--question", "s1/ask#4/0", code=2).stderr
    assert "the answer is not JSON" in told and "the question is a form: answer with JSON such as {" in told


def test_a_question_with_the_longest_names_can_be_answered(buoy: Buoy) -> None:
    run, step, module = "r" * 128, "s" * 128, "m" * 128
    spec = buoy.folder / "long.yaml"
    question = "ask: {title: Ship it?, kind: confirm}"
    spec.write_text(f"name: long\nsteps:\n  - id: {step}\n    modules:\n      - id: {module}\n        {question}\n")
    buoy("start", str(spec), "--id", run)
    buoy.drive()
    buoy("answer", run, "yes")
    buoy.drive()
    assert buoy.json("show", run)["document"]["status"] == "completed"


def test_a_signal_may_have_the_longest_dedupe_id(buoy: Buoy) -> None:
    waiting_ship(buoy)
    for duplicate in (False, True):
        assert buoy.json("signal", "s1", "packed", "--dedupe", "d" * 256)["duplicate"] is duplicate
    assert "1 to 256 printable characters" in buoy("signal", "s1", "packed", "--dedupe", "d" * 257, code=2).stderr
