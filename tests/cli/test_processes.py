"""Real processes: killed, stopped gently, stopped twice, with pipes that break."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from buoy.core.limits import SOLO_AFTER
from tests.patience import PATIENCE_S

from .conftest import FLOWS, Buoy, Spawn, until


def slow_parts(buoy: Buoy, *, count: int = 4, work_s: float = 0.0) -> list[str]:
    given = json.dumps({"witness": str(buoy.witness), "count": count, "work_s": work_s})
    return [f"{FLOWS}:parts", "--input", given, "--id", "p1"]


def done_once(buoy: Buoy, count: int = 4) -> bool:
    seen = Counter(buoy.seen())
    return all(seen[f"done {number}"] == 1 for number in range(count))


def killed(buoy: Buoy, spawn: Spawn) -> None:
    """A run that was killed in the middle of its third part."""
    with buoy.held(2):
        victim = spawn("run", *slow_parts(buoy))
        until(lambda: "begin 2" in buoy.seen(), victim)
        victim.send(signal.SIGKILL)
        victim.wait()


def test_a_killed_run_is_explained_and_a_worker_goes_on_where_it_was(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    told = buoy("why", "p1").stdout
    assert "p1 was executing step part (attempt 1) when the process that drove it ended" in told
    assert "the lock that it held while it lived is free" in told
    assert "2 completed parts will not run again" in told
    assert buoy.json("show", "p1")["health"] == "dead"
    assert "dead" in buoy("ps").stdout
    assert "is dead but still registered" in buoy("status", code=1).stdout
    taken = buoy("worker", str(FLOWS), "--until-idle").stdout
    assert "took p1 (parts): taken over from runner-" in taken
    assert "(lock free)" in taken
    assert buoy("result", "p1").stdout == "[0,1,2,3]\n"
    assert done_once(buoy)
    assert Counter(buoy.seen())["begin 2"] == 2
    assert "taken over from a dead runner once" in buoy("why", "p1").stdout


def test_the_same_command_brings_a_killed_run_back(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    found = buoy("run", f"{FLOWS}:parts", "--id", "p1")
    assert "taking the run over from runner-" in found.stderr
    assert found.stdout == "[0,1,2,3]\n"
    assert done_once(buoy)
    claims = [each["body"] for each in buoy.json("events", "p1")["events"] if each["body"]["type"] == "claimed"]
    assert (claims[-1]["cause"], claims[-1]["evidence"]["proof"]) == ("taken_over", "lock free")


def test_a_run_that_somebody_drives_is_watched_and_not_taken(buoy: Buoy, spawn: Spawn) -> None:
    with buoy.held(1):
        owner = spawn("run", *slow_parts(buoy))
        until(lambda: "begin 1" in buoy.seen(), owner)
        watcher = spawn("run", f"{FLOWS}:parts", "--id", "p1")
        until(lambda: "drives this run; watching it" in watcher.err.read_text(), watcher)
    assert watcher.wait() == 0
    assert watcher.out.read_text() == "[0,1,2,3]\n"
    assert owner.wait() == 0
    assert max(Counter(buoy.seen()).values()) == 1


def test_one_interrupt_gives_the_run_back_in_good_order(buoy: Buoy, spawn: Spawn) -> None:
    with buoy.held(1):
        owner = spawn("run", *slow_parts(buoy, work_s=1.0))
        until(lambda: "begin 1" in buoy.seen(), owner)
        owner.send(signal.SIGINT)
    assert owner.wait() == 4
    assert "continue it: buoy run" in owner.err.read_text()
    told = buoy("why", "p1").stdout
    assert "was interrupted and is queued to continue" in told
    assert "which stopped on SIGINT" in told
    buoy.drive()
    assert max(Counter(buoy.seen()).values()) == 1
    assert done_once(buoy)


def test_a_worker_stops_gently_under_load_and_another_finishes(buoy: Buoy, spawn: Spawn) -> None:
    for number in range(20):
        given = json.dumps({"witness": str(buoy.witness), "count": 4, "work_s": 0.2})
        buoy("start", f"{FLOWS}:parts", "--input", given, "--id", f"load-{number}")
    first = spawn("worker", str(FLOWS))
    until(lambda: len(buoy.seen()) > 30, first)
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    assert "SIGTERM: stopping" in first.out.read_text()
    buoy.drive()
    assert {each["document"]["status"] for each in buoy.json("ps", "--all")["runs"]} == {"completed"}
    assert Counter(buoy.seen()) == {f"{word} {number}": 20 for word in ("begin", "done") for number in range(4)}


def test_a_second_signal_ends_a_worker_at_once(buoy: Buoy, spawn: Spawn) -> None:
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        buoy.witness.write_text("")
        buoy("start", f"{FLOWS}:hanging", "--arg", f"witness={buoy.witness}", "--id", f"h-{code}")
        worker = spawn("worker", str(FLOWS))
        until(lambda: "stuck" in buoy.seen(), worker)
        worker.send(number)
        until(lambda worker=worker: "stopping" in worker.out.read_text(), worker)  # type: ignore[misc]
        worker.send(number)
        assert worker.wait() == code
        assert buoy.json("show", f"h-{code}")["health"] == "dead"
        buoy.witness.write_text("")


def test_a_worker_whose_step_never_ends_exits_after_the_grace_time(buoy: Buoy, spawn: Spawn) -> None:
    buoy("start", f"{FLOWS}:hanging", "--arg", f"witness={buoy.witness}", "--id", "h1")
    worker = spawn("worker", str(FLOWS), "--grace", "200ms")
    until(lambda: "stuck" in buoy.seen(), worker)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "still executing: 1 run" in worker.out.read_text()
    assert buoy.json("show", "h1")["health"] == "dead"


def test_a_live_run_shows_its_owner_and_progress(buoy: Buoy, spawn: Spawn) -> None:
    with buoy.held(1):
        owner = spawn("run", *slow_parts(buoy, count=2))
        until(lambda: "begin 1" in buoy.seen(), owner)
        until(lambda: "progress" in buoy.json("show", "p1"), owner)
        found = buoy.json("show", "p1")
        assert (found["health"], found["pid"], found["progress"]["total"]) == ("live", owner.popen.pid, 10)
        row = buoy("ps").stdout.splitlines()[1]
        assert str(owner.popen.pid) in row
        assert "of 10" in row
        assert f"driven by runner {found['runner']} (process {owner.popen.pid} on" in buoy("why", "p1").stdout
    assert owner.wait() == 0


def test_a_question_is_answered_while_the_run_waits_for_it(buoy: Buoy, spawn: Spawn) -> None:
    owner = spawn("run", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    until(lambda: "answer it with: buoy answer s1 yes --question" in owner.err.read_text(), owner)
    assert "drives the run and will handle it" in buoy("answer", "s1", "yes").stdout
    assert owner.wait() == 0
    assert owner.out.read_text() == '"1 lamp"\n'


def test_a_live_run_is_paused_resumed_and_cancelled_from_outside(buoy: Buoy, spawn: Spawn) -> None:
    owner = spawn("run", *slow_parts(buoy, count=100, work_s=0.1))
    until(lambda: "begin 1" in buoy.seen(), owner)
    assert "drives the run and will handle it" in buoy("pause", "p1").stdout
    until(lambda: buoy.json("show", "p1")["document"]["status"] == "paused", owner)
    assert buoy("resume", "p1").stdout.startswith(("run p1 is", "requested"))
    count = len(buoy.seen())
    until(lambda: len(buoy.seen()) > count + 2, owner)
    buoy("cancel", "p1", "--reason", "enough")
    assert owner.wait() == 3
    assert "was cancelled: enough" in owner.err.read_text()


def test_the_same_command_brings_a_run_back_that_was_killed_many_times(buoy: Buoy, spawn: Spawn) -> None:
    flow = buoy.folder / "deadly.py"
    flow.write_text(
        "import buoy, os, pathlib, signal\n@buoy.step\ndef deadly(file: str) -> int:\n"
        "    with open(file, 'a') as seen:\n        seen.write('x')\n"
        "    count = len(pathlib.Path(file).read_text())\n"
        "    if count <= 4:\n        os.kill(os.getpid(), signal.SIGKILL)\n    return count\n"
        "@buoy.workflow\ndef flow(file: str) -> int:\n    return deadly(file)\n"
    )
    words = ("run", str(flow), "--arg", f"file={buoy.folder / 'tries'}", "--id", "d1")
    assert [spawn(*words).wait() for _ in range(5)] == [-signal.SIGKILL] * 4 + [0]
    assert buoy("result", "d1").stdout == "5\n"


def test_json_is_alone_on_standard_output_whatever_steps_print(buoy: Buoy, spawn: Spawn) -> None:
    flow = buoy.folder / "noisy.py"
    flow.write_text(
        "import buoy, os, subprocess\nprint('at import')\n@buoy.step\ndef noise() -> int:\n"
        "    print('in a step')\n    subprocess.run(['echo', 'in a child'], check=True)\n    return 5\n"
        "@buoy.workflow\ndef flow() -> int:\n    return noise()\n"
    )
    process = spawn("run", str(flow), "--json", "--id", "n1")
    assert process.wait() == 0
    assert json.loads(process.out.read_text())["result"] == 5
    for text in ("at import", "in a step", "in a child"):
        assert text in process.err.read_text()


def test_a_reader_that_has_had_enough_is_no_error(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--arg", "count=300", "--id", "p1")
    command = [sys.executable, "-m", "buoy", "events", "p1", "--json", "--store", buoy.store]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(PATIENCE_S) == 0


def test_a_run_goes_on_when_nobody_reads_about_it_any_more(buoy: Buoy) -> None:
    command = [sys.executable, "-m", "buoy", "run", *slow_parts(buoy, work_s=0.25), "--store", buoy.store]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.close()
    assert process.wait(PATIENCE_S) == 0
    assert done_once(buoy)


def test_a_worker_finds_its_files_in_the_configuration(buoy: Buoy, spawn: Spawn) -> None:
    buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "d1")
    inner = buoy.folder / "inner"
    inner.mkdir()
    (buoy.folder / "flows_here.py").write_text(FLOWS.read_text())
    (buoy.folder / "buoy.toml").write_text('store = "sqlite:///buoy.db"\n[worker]\nfiles = ["flows_here.py"]\n')
    words = [sys.executable, "-m", "buoy", "worker", "--until-idle"]
    done = subprocess.run(words, cwd=inner, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "d1 completed" in done.stdout
    assert not Path(inner, ".buoy").exists()


DEADLY_CHILD = """
import asyncio, os, pathlib, signal
import buoy

@buoy.step
async def deadly(fuse: str) -> str:
    left = pathlib.Path(fuse)
    crashes = int(left.read_text())
    if crashes:
        left.write_text(str(crashes - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"

@buoy.workflow
async def child(fuse: str) -> str:
    return await deadly(fuse)

@buoy.workflow
async def parent(fuse: str) -> str:
    return await child(fuse)
"""


def test_run_drives_a_child_that_must_be_alone(buoy: Buoy, spawn: Spawn) -> None:
    flows, fuse = buoy.folder / "deadly.py", buoy.folder / "fuse"
    flows.write_text(DEADLY_CHILD)
    fuse.write_text(str(SOLO_AFTER + 1))
    words = ["run", f"{flows}:parent", "--arg", f"fuse={fuse}", "--id", "p"]
    for _ in range(SOLO_AFTER + 1):
        assert spawn(*words).wait() == -signal.SIGKILL
    last = spawn(*words)
    assert last.wait() == 0, last.output()
    records = [run["document"]["run_id"] for run in buoy.json("ps", "--all")["runs"]]
    child = next(run_id for run_id in records if run_id != "p")
    bodies = [event["body"] for event in buoy.json("events", child)["events"]]
    claims = [body for body in bodies if body["type"] == "claimed"]
    assert claims[-1]["evidence"]["solo"] is True
