"""`buoy service --worker`: what is left after everything was killed is executed by cron, or by systemd."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections import Counter

from tests.patience import PATIENCE_S

from .conftest import ASKING, FLOWS, Buoy, Spawn, until

# As cron has it: nothing of the shell that asked for the line.
BARE = {"PATH": "/usr/bin:/bin"}
COUNT = 4


def parts(buoy: Buoy, name: str) -> list[str]:
    given = json.dumps({"witness": str(buoy.witness), "count": COUNT})
    return ["start", f"{FLOWS}:parts", "--input", given, "--id", name]


def everything_killed(buoy: Buoy, spawn: Spawn) -> None:
    """One run in the middle of a step, one that nothing has begun; all processes end by SIGKILL."""
    with buoy.held(1):
        worker, client = spawn("worker", str(FLOWS)), spawn(*parts(buoy, "p1"))
        until(lambda: "begin 1" in buoy.seen(), worker)
        for each in (worker, client):
            if each.popen.poll() is None:
                each.send(signal.SIGKILL)
            each.wait()
    given = json.dumps({"number": 5})
    buoy("start", f"{FLOWS}:divide", "--input", given, "--id", "d1")


def command_of(line: str) -> str:
    """What cron hands to the shell."""
    return line.rstrip("\n").replace("\\%", "%").split(" ", 5)[5]


def finished(buoy: Buoy) -> bool:
    return all(buoy.json("show", run)["document"]["status"] == "completed" for run in ("p1", "d1"))


def test_the_line_for_cron_finishes_what_a_kill_of_everything_left(buoy: Buoy, spawn: Spawn) -> None:
    everything_killed(buoy, spawn)
    line = buoy.json("service", "--worker", str(FLOWS), "--interval", "5m")["crontab"]
    assert line.startswith("*/5 * * * * cd ")
    assert not finished(buoy)
    done = subprocess.run(
        ["/bin/sh", "-c", command_of(line)], env=BARE, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert finished(buoy)
    assert buoy("result", "p1").stdout == "[0,1,2,3]\n"
    seen = Counter(buoy.seen())
    assert [seen[f"done {number}"] for number in range(COUNT)] == [1] * COUNT
    assert seen["begin 0"] == 1, "what was completed is not executed again"


def test_the_unit_for_systemd_finishes_it_and_stops_gently(buoy: Buoy, spawn: Spawn) -> None:
    everything_killed(buoy, spawn)
    unit = buoy.json("service", "--worker", str(FLOWS), "--queue", "default")["systemd"]
    assert "Restart=always" in unit and "KillMode=mixed" in unit and "until-idle" not in unit
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).partition("=")[2]
    process = subprocess.Popen(shlex.split(command), env=BARE, cwd=buoy.folder, stdout=subprocess.DEVNULL)
    try:
        until(lambda: finished(buoy))
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_two_lines_at_once_execute_nothing_twice(buoy: Buoy, spawn: Spawn) -> None:
    """Cron starts the next one whether the last one has ended or not."""
    everything_killed(buoy, spawn)
    line = command_of(buoy.json("service", "--worker", str(FLOWS))["crontab"])
    both = [subprocess.Popen(["/bin/sh", "-c", line], env=BARE, cwd="/") for _ in range(2)]
    assert [each.wait(PATIENCE_S) for each in both] == [0, 0]
    assert finished(buoy)
    seen = Counter(buoy.seen())
    assert [seen[f"done {number}"] for number in range(COUNT)] == [1] * COUNT


def test_a_worker_for_the_machine_names_files_that_are_there(buoy: Buoy) -> None:
    assert "there is no file nowhere.py" in buoy("service", "--worker", "nowhere.py", code=2).stderr
    assert "queue name" in buoy("service", "--worker", "--queue", "a b", code=2).stderr
    assert "buoy-worker.service" in buoy("service", "--worker").stdout
    text = buoy("service", "--worker", str(FLOWS), "package.flows", "--form", "crontab").stdout
    assert f"worker {FLOWS} package.flows --until-idle --start-delay 0" in text


def test_what_is_brought_back_without_a_worker_comes_with_the_command_that_executes_it(
    buoy: Buoy, spawn: Spawn
) -> None:
    everything_killed(buoy, spawn)
    told = buoy("resume", "--all").stderr
    assert "no worker is alive; start one to continue" in told
    assert told.count("execute them now, until nothing is due: buoy worker FILE.py --until-idle") == 1
    assert "after every reboot: buoy service --worker FILE.py" in told
    found = buoy.json("resume", "--all")
    assert found["worker_alive"] is False
    command = found["runs"][0]["execute"]
    words = [str(FLOWS) if word == "FILE.py" else word for word in shlex.split(command)[1:]]
    buoy(*words)
    assert finished(buoy)


def test_a_worker_that_does_not_know_the_workflow_is_no_help(buoy: Buoy, spawn: Spawn) -> None:
    everything_killed(buoy, spawn)
    other = spawn("worker", str(ASKING), "--no-sweeper")
    until(lambda: "drives" in other.output(), other)
    told = buoy("resume", "--all").stderr
    assert "nothing happens yet: no live worker knows workflow 'parts'" in told
    assert "buoy worker FILE.py --until-idle" in told
