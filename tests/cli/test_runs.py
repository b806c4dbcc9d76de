"""Beginning runs and reading how they ended."""

from __future__ import annotations

import json

from .conftest import FLOWS, Buoy


def test_a_run_prints_its_result_alone_on_standard_output(buoy: Buoy) -> None:
    given = json.dumps({"witness": str(buoy.witness), "count": 3})
    found = buoy("run", f"{FLOWS}:parts", "--input", given, "--id", "p1")
    assert json.loads(found.stdout) == [0, 1, 2]
    assert "step completed: part#3" in found.stderr
    assert buoy.seen() == [f"{word} {number}" for number in range(3) for word in ("begin", "done")]


def test_a_run_with_json_prints_nothing_else(buoy: Buoy) -> None:
    found = buoy.json("run", f"{FLOWS}:division", "--arg", "number=5", "--id", "d1")
    assert found == {"run_id": "d1", "workflow": "divide", "status": "completed", "result": 2}


def test_a_failed_run_has_exit_code_1_and_its_error(buoy: Buoy) -> None:
    found = buoy("run", f"{FLOWS}:divide", "--arg", "number=0", "--id", "d0", code=1)
    assert "error: run d0 failed: ZeroDivisionError" in found.stderr
    assert buoy.json("result", "d0", code=1)["error"]["type"] == "ZeroDivisionError"


def test_a_run_that_ended_is_told_again_and_not_done_again(buoy: Buoy) -> None:
    words = ("run", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--id", "p1")
    assert buoy(*words).stdout == buoy(*words).stdout == buoy("run", f"{FLOWS}:parts", "--id", "p1").stdout
    assert len(buoy.seen()) == 8


def test_an_id_of_another_run_is_refused(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "x")
    other = buoy("run", f"{FLOWS}:signalled", "--id", "x", code=2)
    assert "is a run of sleeper, not of signalled" in other.stderr
    buoy("start", f"{FLOWS}:divide", "--arg", "number=1", "--id", "y")
    same = buoy("start", f"{FLOWS}:divide", "--arg", "number=2", "--id", "y", code=2)
    assert "with another input" in same.stderr


def test_start_prints_the_id_and_a_worker_does_the_work(buoy: Buoy) -> None:
    begun = buoy("start", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}")
    run_id = begun.stdout.strip()
    assert run_id.startswith("parts-")
    assert "no worker is alive; start one: buoy worker" in begun.stderr
    assert buoy("result", run_id, code=4).stdout == ""
    done = buoy("worker", str(FLOWS), "--until-idle")
    assert f"took {run_id} (parts): new" in done.stdout
    assert f"{run_id} completed" in done.stdout
    assert buoy("result", run_id).stdout == "[0,1,2,3]\n"


def test_a_worker_writes_json_lines(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "d1")
    lines = [json.loads(line) for line in buoy("worker", str(FLOWS), "--until-idle", "--json").stdout.splitlines()]
    assert [line["what"] for line in lines] == ["started", "taken", "ended", "idle", "stopped"]
    assert (lines[1]["run_id"], lines[1]["cause"], lines[2]["status"]) == ("d1", "created", "completed")


def test_a_worker_leaves_other_queues_alone(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "d1")
    buoy("worker", str(FLOWS), "--until-idle", "--queue", "other")
    assert buoy.json("show", "d1")["document"]["status"] == "pending"


def test_results_have_an_exit_code_for_every_end(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    assert buoy.json("result", "s1", code=4)["status"] == "pending"
    assert "has not ended" in buoy("result", "s1", "--timeout", "50ms", code=4).stderr
    buoy("cancel", "s1", "--reason", "no need")
    assert "was cancelled: no need" in buoy("result", "s1", "--wait", code=3).stderr


def test_questions_are_asked_here_and_wrong_answers_refused(buoy: Buoy) -> None:
    found = buoy(
        "run", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1", "--ask", typed="perhaps\nyes\n"
    )
    assert "not accepted: expected yes or no" in found.stderr
    assert found.stdout == '"1 lamp"\n'


def test_a_person_may_choose_by_number(buoy: Buoy) -> None:
    typed = "2\n1,3\nsome words\nRome\n"
    found = buoy("run", f"{FLOWS}:several", "--id", "s1", "--ask", typed=typed)
    assert json.loads(found.stdout) == ["blue", ["S", "L"], "some words", {"town": "Rome"}]


def test_a_run_that_was_declined_is_cancelled(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1", "--ask", typed="no\n", code=3)
    assert "declined" in buoy("why", "s1").stdout


def test_a_run_whose_code_changed_is_paused_and_not_waited_for(buoy: Buoy) -> None:
    file = buoy.folder / "changing.py"
    head = "import buoy\n@buoy.step\ndef a() -> int:\n    return 1\n@buoy.step\ndef b() -> int:\n    return 2\n"
    body = "@buoy.workflow\ndef flow() -> bool:\n    {}()\n    return buoy.ask('Continue?', kind='confirm')\n"
    file.write_text(head + body.format("a"))
    buoy("start", str(file), "--id", "c1")
    buoy("worker", str(file), "--until-idle")
    other = buoy.folder / "changed.py"
    other.write_text(head + body.format("b"))
    found = buoy("run", str(other), "--id", "c1", code=4)
    assert "not ended: it is paused" in found.stderr
    told = buoy("why", "c1").stdout
    assert "the code of the workflow has changed" in told
    assert "a#1" in told
    assert buoy("run", str(file), "--id", "c1", "--ask", typed="yes\n").stdout == "true\n"


def test_an_input_may_come_from_a_file_or_from_standard_input(buoy: Buoy) -> None:
    (buoy.folder / "given.json").write_text('{"number": 5}')
    assert buoy("run", f"{FLOWS}:divide", "--input", "@given.json").stdout.endswith("2\n")
    assert buoy("run", f"{FLOWS}:divide", "--input", "@-", typed='{"number": 2}').stdout.endswith("5\n")
    assert buoy("run", f"{FLOWS}:divide", "--input", "@given.json", "--arg", "number=1").stdout.endswith("10\n")
