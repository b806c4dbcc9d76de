"""Lists, single runs, logs and the store as a whole."""

from __future__ import annotations

import json
import sqlite3

from .conftest import FLOWS, Buoy


def test_a_list_shows_runs_that_have_not_ended(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:divide", "--arg", "number=5", "--id", "d1")
    buoy("start", f"{FLOWS}:hopeful", "--id", "h1")
    buoy.drive()
    shown = buoy("ps").stdout
    heads = " ".join(shown.splitlines()[0].split())
    assert heads == "RUN WORKFLOW STATUS HEALTH AT TRY AGE LAST BEAT PID HOST PROGRESS"
    assert "unlucky (retry)" in shown
    assert "d1" not in shown
    assert "d1" in buoy("ps", "--all").stdout
    assert [each["document"]["run_id"] for each in buoy.json("ps", "--status", "completed")["runs"]] == ["d1"]
    assert [each["document"]["run_id"] for each in buoy.json("ps", "--all", "--workflow", "hopeful")["runs"]] == ["h1"]


def test_a_list_goes_on_at_its_cursor(buoy: Buoy) -> None:
    for number in range(3):
        buoy("start", f"{FLOWS}:sleeper", "--id", f"s{number}")
    first = buoy.json("ps", "--limit", "2")
    rest = buoy.json("ps", "--limit", "2", "--cursor", first["cursor"])
    assert [each["document"]["run_id"] for each in first["runs"] + rest["runs"]] == ["s2", "s1", "s0"]
    assert rest["cursor"] is None
    assert "more: --cursor" in buoy("ps", "--limit", "2").stderr
    assert "cursor" in buoy("ps", "--cursor", "nonsense", code=2).stderr


def test_an_empty_list_says_so(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:divide", "--arg", "number=5")
    assert "no active runs" in buoy("ps").stdout
    assert buoy.json("ps") == {"runs": [], "cursor": None}


def test_show_has_questions_with_their_ids(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:several", "--id", "s1")
    buoy.drive()
    told = buoy("show", "s1").stdout
    assert "'Which colour?', id s1/ask#1/0, expects one of red, blue" in told
    assert "awaiting answer" in told
    found = buoy.json("show", "s1")
    assert (found["health"], found["document"]["open_count"]) == ("idle", 4)


def test_show_has_input_result_and_every_step_with_its_arguments(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--arg", "count=2", "--id", "p1")
    told = buoy("show", "p1").stdout
    assert f'input     {{"witness":"{buoy.witness}"'[:60] in told
    assert "result    [0,1]" in told
    assert "steps     2 completed, 0 failed, 0 open" in told
    (second,) = [line for line in told.splitlines() if "✓ part#2" in line]
    assert '{"number":1,"witness":' in second and second.endswith(" = 1")
    found = buoy.json("show", "p1")
    assert (found["input"]["witness"], found["input"]["count"]) == (str(buoy.witness), 2)
    assert found["result"] == [0, 1]
    first = found["leaves"][0]
    assert first["input"] == {"number": 0, "witness": str(buoy.witness), "work_s": 0.0}
    assert (first["status"], first["attempt"], first["result"]) == ("completed", 1, 0)
    assert first["ended_at"] >= first["started_at"]


def test_show_names_the_error_and_the_attempt_of_a_step_that_is_tried_again(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:hopeful", "--id", "h1")
    buoy.drive()
    assert "… unlucky#1  retrying" in buoy("show", "h1").stdout
    (leaf,) = buoy.json("show", "h1")["leaves"]
    assert (leaf["status"], leaf["error"]["type"]) == ("retrying", "ValueError")


def test_show_counts_the_steps_of_a_spec_as_its_author_does(buoy: Buoy) -> None:
    (buoy.folder / "s.yaml").write_text(
        "name: s\nsteps:\n  - {id: a, run: 'true'}\n  - id: b\n    modules:\n      - {id: x, run: 'true'}\n"
        "      - {id: y, run: 'true'}\n  - {id: pick, needs: [a, b], ask: {title: 'Go?', kind: confirm}}\n"
    )
    buoy("start", "s.yaml", "--id", "s1")
    buoy.drive()
    assert "? Go?" in buoy("ps").stdout
    buoy("answer", "s1", "yes")
    buoy.drive()
    assert "steps     3 completed, 0 failed, 0 open" in buoy("show", "s1").stdout


def test_events_tell_arguments_and_results_in_short(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:parts", "--arg", f"witness={'x' * 200}", "--arg", "count=0", "--id", "p0")
    buoy("run", f"{FLOWS}:division", "--arg", "number=5", "--id", "d1")
    assert '{"number":5}' in buoy("events", "d1").stdout
    assert max(map(len, buoy("events", "p0").stdout.splitlines())) < 200
    assert '{"witness":"xxxx' in buoy("events", "p0").stdout


def test_why_names_the_error_the_next_try_and_what_to_do(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:hopeful", "--id", "h1")
    buoy.drive()
    told = buoy("why", "h1").stdout
    assert "waits for the next attempt of step unlucky: attempt 1 failed" in told
    assert "ValueError: no luck ..." in told
    assert "no worker is alive" in told
    assert f"buoy cancel h1 --store {buoy.store}" in told
    found = buoy.json("why", "h1")
    assert set(found) == {
        "run_id", "status", "health", "headline", "now", "wrong", "evidence", "next", "you_can", "advice", "findings"
    }  # fmt: skip


def test_events_are_a_document_or_lines(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--arg", "count=1", "--id", "p1")
    found = buoy.json("events", "p1", "--after", "2", "--limit", "2")
    assert [event["body"]["type"] for event in found["events"]] == ["step_started", "step_completed"]
    lines = buoy("events", "p1", "--follow", "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4, 5]
    assert "workflow_completed" in buoy("events", "p1", "-f", "--after", "4").stdout


def test_the_status_of_a_healthy_store_is_fine(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:divide", "--arg", "number=5")
    assert "no troubles" in buoy("status").stdout
    found = buoy.json("status")
    assert (found["runs"], found["troubles"]) == ({"completed": 1}, [])


def test_the_status_names_runs_that_nobody_can_take(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    told = buoy("status", code=1).stdout
    assert "no sweeper is running" in told
    assert "s1 is stalled" in told


def test_completion_scripts_are_there_for_every_shell(buoy: Buoy) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_BUOY_COMPLETE" in buoy("completion", shell).stdout
    assert buoy.json("completion", "bash")["shell"] == "bash"


def change(buoy: Buoy, statement: str) -> None:
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        assert connection.execute(statement).rowcount == 1


def test_a_document_that_disagrees_with_its_log_is_drifted(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    change(buoy, 'UPDATE runs SET doc = replace(doc, \'"status":"awaiting_input"\', \'"status":"waiting_signal"\')')
    assert buoy.json("why", "s1")["health"] == "drifted"
    assert "its document says status = waiting_signal, its log says awaiting_input" in buoy("why", "s1").stdout


def test_a_log_that_cannot_be_read_is_unknown_and_not_dead(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    change(buoy, 'UPDATE log SET body = \'[{"seq": 1, "at": 1.0, "body": {"type": "future_event"}}]\'')
    told = buoy("why", "s1").stdout
    assert "health unknown" in told
    assert "'future_event', which this version of Buoy does not know" in told
    assert "Traceback" not in buoy("result", "s1", code=1).stderr
    assert "does not know" in buoy("run", f"{FLOWS}:sleeper", "--id", "s1", code=1).stderr


def test_a_list_is_narrowed_by_text_parent_and_age(buoy: Buoy) -> None:
    for name in ("lamp-1", "lamp-2", "desk-1"):
        buoy("start", f"{FLOWS}:sleeper", "--id", name)

    def names(*words: str) -> list[str]:
        return [each["document"]["run_id"] for each in buoy.json("ps", *words)["runs"]]

    assert names("--text", "lamp") == ["lamp-2", "lamp-1"]
    assert names("--parent", "lamp-1") == []
    assert names("--newer-than", "1h", "--workflow", "sleeper") == ["desk-1", "lamp-2", "lamp-1"]
    assert names("--older-than", "1h") == []
    assert "both older" in buoy("ps", "--older-than", "2h", "--newer-than", "1h", code=2).stderr
    assert "not a duration" in buoy("ps", "--older-than", "soon", code=2).stderr


def test_ended_runs_are_purged_and_told_as_purged(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:divide", "--arg", "number=5", "--id", "d1")
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    assert "give --older-than TIME" in buoy("purge", code=2).stderr
    assert "0 runs purged" in buoy("purge", "--older-than", "1d", "--yes").stderr
    assert "add --yes" in buoy("purge", "--older-than", "0s", code=2).stderr
    would = buoy("purge", "--older-than", "0s", "--dry-run")
    assert (would.stdout, would.stderr) == ("d1\n", "1 run would be purged\n")
    assert buoy.json("purge", "--older-than", "0s", "--status", "completed", "--yes")["runs"] == ["d1"]
    told = buoy("show", "d1", code=2).stderr
    assert "run d1 of divide was purged" in told and "it was completed" in told
    again = buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "d1", code=2).stderr
    assert "its id is not used again" in again
    assert "s1" in buoy("ps").stdout


def test_a_run_is_drawn_in_every_form(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--arg", "count=2", "--id", "p1")
    assert "✓ part #2" in buoy("graph", "p1").stdout
    assert "n0 --> n1" in buoy("graph", "p1", "--format", "mermaid").stdout
    buoy("graph", "p1", "-o", "p1.svg")
    assert (buoy.folder / "p1.svg").read_text().startswith("<svg ")
    assert buoy.json("graph", "p1")["links"] == [[0, 1]]
    assert "no run" in buoy("graph", "p2", code=2).stderr
    assert "cannot be written" in buoy("graph", "p1", "-o", "no/such/place.svg", code=2).stderr
