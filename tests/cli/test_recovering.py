"""Runs that were left behind, seen and brought back from the command line."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from .conftest import FLOWS, Buoy, Spawn, until

POLICIES = """
import asyncio, buoy
from pathlib import Path

@buoy.step
async def slow(witness: str) -> None:
    with Path(witness).open("a") as file:
        file.write("begin\\n")
    await asyncio.sleep(60)

{flows}
"""
FLOW = """
@buoy.workflow(recovery="{policy}")
async def {policy}_flow(witness: str) -> None:
    await slow(witness)
"""


def killed(buoy: Buoy, spawn: Spawn, run_id: str = "p1") -> None:
    """A run whose process was killed in its third part."""
    given = json.dumps({"witness": str(buoy.witness), "count": 4})
    with buoy.held(2):
        victim = spawn("run", f"{FLOWS}:parts", "--input", given, "--id", run_id)
        until(lambda: "begin 2" in buoy.seen() and _has_beaten(buoy), victim)
        victim.send(signal.SIGKILL)
        victim.wait()


def _has_beaten(buoy: Buoy) -> bool:
    """A heartbeat has a thread of its own, so on a busy machine the steps may be quicker than the first one."""
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        return any(json.loads(beat)["number"] for (beat,) in connection.execute("SELECT beat FROM runners"))


def change(buoy: Buoy, statement: str) -> None:
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        assert connection.execute(statement).rowcount >= 1


def test_one_sweep_puts_a_killed_run_back_into_its_queue(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    would = buoy.json("sweeper", "--once", "--dry-run")
    assert (would["resumed"], would["dry_run"]) == (1, True)
    assert buoy.json("show", "p1")["health"] == "dead"
    swept = buoy.json("sweeper", "--once", "--stale-after", "0", code=1)
    words = ("scanned", "healthy", "restarted", "resumed", "failed", "held", "skipped", "unknown")
    assert {word: swept[word] for word in words} == dict.fromkeys(words, 0) | {"scanned": 1, "resumed": 1}
    assert swept["reconciled"] == {"replayed": 0, "skipped": 0, "troubles": [], "cursor": None}
    assert (
        "left behind and is queued" in buoy("why", "p1").stdout
        or "no live worker can run it" in buoy("why", "p1").stdout
    )
    # No process is there to drive it. The sweep says so, and a sweep that leaves a run stuck is no success.
    assert "Q5" in buoy("sweeper", "--once", "--stale-after", "0", code=1).stdout
    buoy.drive()
    assert buoy("result", "p1").stdout == "[0,1,2,3]\n"
    assert Counter(buoy.seen())["done 0"] == 1
    assert "swept in" in buoy("sweeper", "--once").stdout


def test_each_policy_is_kept_after_a_kill(buoy: Buoy, spawn: Spawn) -> None:
    policies = ("resume", "restart", "fail", "hold")
    flows = buoy.folder / "policies.py"
    flows.write_text(POLICIES.format(flows="".join(FLOW.format(policy=each) for each in policies)))
    victim = spawn("worker", str(flows))
    for each in policies:
        buoy("start", f"{flows}:{each}_flow", "--arg", f"witness={buoy.witness}", "--id", each)
    until(lambda: len(buoy.seen()) == 4, victim)
    victim.send(signal.SIGKILL)
    victim.wait()
    swept = buoy.json("sweeper", "--once", code=1)
    assert {each: swept[each] for each in ("resumed", "restarted", "failed", "held")} == dict.fromkeys(
        ("resumed", "restarted", "failed", "held"), 1
    )
    shown = {each["document"]["run_id"]: each["document"]["status"] for each in buoy.json("ps", "--all")["runs"]}
    assert shown == {"resume": "running", "restart": "running", "fail": "failed", "hold": "paused"}
    assert "H1" in buoy("why", "hold").stdout or "held" in buoy("why", "hold").stdout
    assert "neither quarantined nor held" in buoy("release", "resume", code=2).stderr
    assert "was held: hold" in buoy("release", "hold").stdout
    assert buoy.json("show", "hold")["document"]["status"] != "paused"


def test_a_sweeper_of_its_own_finds_the_dead_within_moments_and_stops_gently(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    sweeper = spawn("sweeper", "--interval", "1")
    until(lambda: "swept in" in sweeper.out.read_text(), sweeper)
    until(lambda: buoy.json("show", "p1")["health"] != "dead", sweeper)
    until(lambda: buoy.json("status", code=1)["sweepers"], sweeper)
    status = buoy.json("status", code=1)
    assert [each["role"] for each in status["sweepers"]] == ["sweeper"]
    assert status["sweepers"][0]["alive"] and not status["sweepers"][0]["failing"]
    until(lambda: "swept     by 1 sweeper, last" in buoy("status", code=1).stdout, sweeper)
    sweeper.send(signal.SIGTERM)
    assert sweeper.wait() == 0
    assert "stopped" in sweeper.out.read_text()
    left = buoy.json("status", code=1)["sweepers"]
    assert [each["alive"] for each in left] == [False], "its last sweep is remembered"


def test_a_worker_sweeps_unless_it_is_told_not_to(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    idle = spawn("worker", str(FLOWS), "--no-sweeper")
    until(lambda: "drives" in idle.out.read_text(), idle)
    until(lambda: buoy.json("status", code=1)["runners"], idle)
    assert buoy.json("show", "p1")["health"] == "dead"
    assert "no sweeper is running" in buoy("status", code=1).stdout
    idle.send(signal.SIGTERM)
    idle.wait()
    buoy.drive()
    assert buoy("result", "p1").stdout == "[0,1,2,3]\n"


def test_what_was_left_behind_is_listed_and_brought_back(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    listed = buoy("resume")
    assert listed.stdout.startswith("s1  pending") or "p1  running" in listed.stdout
    assert "bring them back: buoy resume --all" in listed.stderr
    assert {each["run_id"] for each in buoy.json("resume")["runs"]} == {"p1", "s1"}
    assert "both RUN and --all were given" in buoy("resume", "p1", "--all", code=2).stderr
    back = buoy.json("resume", "p1")
    assert back["done"] and back["recovery"]["needed"] and back["recovery"]["error"] is None
    assert "put back into its queue" in back["text"]
    assert {each["run_id"]: each["done"] for each in buoy.json("resume", "--all")["runs"]} == {"p1": False, "s1": False}
    buoy.drive()
    assert buoy("result", "p1").stdout == "[0,1,2,3]\n"
    assert buoy.json("resume")["runs"] == []
    assert "no run 'x'" in buoy("resume", "x", code=2).stderr


def test_a_recovery_is_shown_before_it_is_done(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy.drive()
    assert "needs no recovery" in buoy("recover", "s1").stdout
    # As a crash between the two writes of another system leaves it: the question is open, the status says running.
    lie = """replace(doc, '"status":"awaiting_input"', '"status":"running"')"""
    change(buoy, f"UPDATE runs SET status = 'running', doc = {lie}")
    told = buoy("recover", "s1", "--dry-run").stdout
    assert "A2" in told and "new branch: 1" in told and "runs again: ask#1" in told
    assert buoy.json("events", "s1")["events"][-1]["body"]["type"] == "interaction_requested"
    line = buoy("why", "--all", code=1).stdout
    assert line.startswith("s1  ") and "A2" in line and "1 run in trouble" in line
    shown = buoy.json("recover", "s1", "--dry-run")["plan"]["id"]
    refused = buoy("recover", "s1", "--plan", "0123456789abcdef", code=2).stderr
    assert f"needs another recovery now (plan {shown})" in refused
    back = buoy.json("recover", "s1", "--plan", shown)
    assert (back["needed"], back["new_branch_id"], back["error"]) == (True, 1, None)
    assert {"reason", "plan", "findings"} <= set(back)
    assert "needs no recovery any more" in buoy("recover", "s1", "--plan", shown, code=2).stderr
    branch = buoy.json("show", "s1")["branches"][0]
    assert (branch["branch"], branch["parent"], branch["cause"]) == (1, 0, "recovery")
    queued = buoy.json("resume", "s1")
    assert not queued["done"] and "queued already" in queued["text"]
    buoy.drive()
    again = buoy.json("resume", "s1")
    assert [leaf["question_id"] for leaf in again["questions"]] == ["s1/ask#1/0"], "it keeps its id"
    buoy("answer", "s1", "yes")
    buoy.drive()
    assert buoy("result", "s1").stdout == '"1 lamp"\n'
    assert "no run 'x'" in buoy("recover", "x", code=2).stderr


def test_no_troubles_are_told_as_such(buoy: Buoy) -> None:
    buoy("run", f"{FLOWS}:divide", "--arg", "number=5", "--id", "d1")
    assert buoy("why", "--all").stdout == "0 runs in trouble\n"
    assert buoy.json("why", "--all") == {"troubles": [], "notices": [], "store": None}
    assert "give either RUN or --all" in buoy("why", code=2).stderr
    assert "give either RUN or --all" in buoy("why", "d1", "--all", code=2).stderr


def test_a_waiting_client_is_no_trouble_and_neither_is_a_dead_one_that_left_nothing(buoy: Buoy, spawn: Spawn) -> None:
    owner = spawn("run", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    until(lambda: "answer it with" in owner.err.read_text(), owner)
    assert "no troubles" in buoy("status").stdout
    buoy("answer", "s1", "yes")
    assert owner.wait() == 0
    # One more, killed after its run had ended elsewhere.
    watcher = spawn("run", f"{FLOWS}:signalled", "--id", "w1")
    until(lambda: "w1" in buoy("ps").stdout, watcher)
    watcher.send(signal.SIGKILL)
    watcher.wait()
    assert "is dead but still registered" in buoy("status", code=1).stdout, "it left a run"
    buoy("sweeper", "--once", code=1)
    buoy("cancel", "w1")
    assert "no troubles" in buoy("status").stdout


def test_texts_for_systemd_and_cron(buoy: Buoy) -> None:
    found = buoy.json("service", "--interval", "10m")
    assert f"--store {buoy.store}" in found["systemd"] and "Restart=always" in found["systemd"]
    assert "sweeper --interval 600" in found["systemd"]
    assert found["crontab"].startswith("*/10 * * * * cd ") and "sweeper --once" in found["crontab"]
    assert buoy("service", "--form", "crontab").stdout == buoy.json("service")["crontab"]
    assert buoy("service", "--interval", "soon", code=2).stderr
    assert buoy("service").stdout.count("sweeper") >= 2
    assert "add --worker" in buoy("service", "flows.py", code=2).stderr
    assert "Environment=" not in found["systemd"] and "BUOY_ENV" not in found["crontab"]


def test_a_service_belongs_to_the_stack_and_env_that_asked_for_it(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUOY_ENV", "e1")
    monkeypatch.setenv("BUOY_STACK", "big $t 100%")
    found = buoy.json("service")
    assert 'Environment="BUOY_ENV=e1"' in found["systemd"]
    assert 'Environment="BUOY_STACK=big $t 100%%"' in found["systemd"]
    buoy("start", f"{FLOWS}:sleeper", "--id", "mine")
    monkeypatch.delenv("BUOY_ENV")
    monkeypatch.delenv("BUOY_STACK")
    buoy("start", f"{FLOWS}:sleeper", "--id", "other")
    change(buoy, "DELETE FROM tasks")
    # As cron would: a shell that knows nothing of the one that asked.
    line = found["crontab"].rstrip("\n").replace("\\%", "%").split(" ", 5)[5].removesuffix(" >/dev/null")
    done = subprocess.run(["/bin/sh", "-c", line], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert "mine resumed" in done.stdout and "other" not in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("interval", "expected"),
    [("60", "* * * * *"), ("5m", "*/5 * * * *"), ("1h", "0 * * * *"), ("2h", "0 */2 * * *"), ("1d", "0 0 * * *")],
)
def test_cron_sweeps_as_often_as_was_asked(buoy: Buoy, interval: str, expected: str) -> None:
    assert buoy("service", "--interval", interval, "--form", "crontab").stdout.startswith(f"{expected} cd ")


@pytest.mark.parametrize(
    ("interval", "near"), [("7m", ("360", "600")), ("23h", ("43200", "86400")), ("2d", ("86400",))]
)
def test_an_interval_that_cron_cannot_keep_is_refused_with_the_nearest(
    buoy: Buoy, interval: str, near: tuple[str, ...]
) -> None:
    told = buoy("service", "--interval", interval, code=2).stderr
    assert all(f"--interval {each}" in told for each in near) and "--form systemd" in told
    assert "sweeper --interval" in buoy("service", "--interval", interval, "--form", "systemd").stdout


def test_a_service_shows_no_password(buoy: Buoy) -> None:
    buoy.store = "postgresql://me:hidden@db/x"
    told = buoy("service", code=2).stderr
    assert "password" in told and "hidden" not in told


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--stack", "a", "--all-stacks"], "both --stack and --all-stacks"),
        (["--rate", "0"], "--rate"),
        (["--limit", "0"], "--limit"),
        (["--interval", "soon"], "not a duration"),
    ],
)
def test_bad_options_of_the_sweeper_are_refused(buoy: Buoy, words: list[str], text: str) -> None:
    buoy("run", f"{FLOWS}:divide", "--arg", "number=5")
    assert text in buoy("sweeper", "--once", *words, code=2).stderr


def test_a_sweep_of_no_store_makes_none(buoy: Buoy) -> None:
    assert "no store at" in buoy("sweeper", "--once", code=5).stderr
    assert not Path(buoy.folder, "buoy.db").exists()


def test_an_env_touches_only_its_own_runs(buoy: Buoy, spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    given = json.dumps({"witness": str(buoy.witness), "count": 4})
    monkeypatch.setenv("BUOY_ENV", "test")
    with buoy.held(1):
        victim = spawn("run", f"{FLOWS}:parts", "--input", given, "--id", "t1")
        until(lambda: "begin 1" in buoy.seen(), victim)
        victim.send(signal.SIGKILL)
        victim.wait()
    assert buoy.json("show", "t1")["document"]["env"] == "test"
    # The sweeper of another env buries the dead process, and leaves its runs to others.
    assert buoy.json("sweeper", "--once", "--stale-after", "0", "--env", "", "--dry-run")["scanned"] == 0
    monkeypatch.delenv("BUOY_ENV")
    buoy.drive()
    assert buoy.json("show", "t1")["document"]["status"] == "running"
    monkeypatch.setenv("BUOY_ENV", "test")
    buoy.drive()
    assert buoy("result", "t1").stdout == "[0,1,2,3]\n"
