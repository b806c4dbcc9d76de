"""`buoy why` for people who know nothing: each situation is made with real processes on a real store."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.freeze import freeze

from .conftest import Buoy, Process, Spawn, until
from .test_recovering import change, killed

SITUATIONS = """
import asyncio, buoy, time
from pathlib import Path

def note(witness: str, line: str) -> None:
    with Path(witness).open("a") as file:
        file.write(line + "\\n")

@buoy.step
async def slow(witness: str) -> None:
    note(witness, "slow")
    await asyncio.sleep(3600)

@buoy.step
async def one() -> int:
    return 1

@buoy.workflow(recovery="fail")
async def failing(witness: str) -> None:
    await slow(witness)

@buoy.workflow
async def long_one(witness: str) -> None:
    await slow(witness)

@buoy.workflow
async def naps() -> None:
    while True:
        await buoy.sleep(0.5)

@buoy.step
async def blocking(witness: str) -> None:
    note(witness, "blocking")
    while not Path(witness + ".go").exists():
        time.sleep(0.05)

@buoy.workflow
async def blocks(witness: str) -> None:
    await blocking(witness)

@buoy.workflow
async def asks() -> object:
    async with asyncio.timeout(600):
        return await buoy.ask("Ship it?", kind="confirm")

@buoy.workflow
async def stuck() -> None:
    await one()
    await asyncio.Event().wait()

@buoy.workflow
async def waits() -> object:
    return await buoy.wait_signal("go")
"""


@pytest.fixture
def situations(buoy: Buoy) -> Path:
    file = buoy.folder / "situations.py"
    file.write_text(SITUATIONS)
    return file


def begun(buoy: Buoy, worker: Process, run_id: str, status: str) -> None:
    until(lambda: buoy.json("show", run_id, code=0)["document"]["status"] == status, worker)


def sections(text: str) -> dict[str, str]:
    """What stands under each title."""
    found, title = {"": ""}, ""
    for line in text.splitlines():
        if line in ("Wrong", "Evidence", "Next", "You can"):
            title = line
        found[title] = found.get(title, "") + line + "\n"
    return found


def test_a_run_that_its_policy_ended_says_so_in_a_plain_sentence(buoy: Buoy, spawn: Spawn, situations: Path) -> None:
    worker = spawn("worker", str(situations))
    buoy("start", f"{situations}:failing", "--arg", f"witness={buoy.witness}", "--id", "r")
    until(lambda: "slow" in buoy.seen(), worker)
    worker.send(signal.SIGKILL)
    worker.wait()
    buoy("sweeper", "--once")
    text = buoy("why", "r").stdout
    assert text.startswith("r has failed: its process ended in the middle of slow#1")
    told = sections(text)
    assert "policy of its workflow is fail" in told["Wrong"] and "RecoveryRefused" not in text
    assert f"process {worker.popen.pid}" in told["Evidence"] and "H1 (dead worker)" in told["Evidence"]
    assert "it has ended" in told["Next"]
    assert "how much of slow#1 was done" in told["You can"] and "buoy retry r" in told["You can"]


def test_a_worker_says_what_the_policy_of_a_run_did_with_it(buoy: Buoy, spawn: Spawn, situations: Path) -> None:
    situations.write_text(SITUATIONS.replace('recovery="fail"', 'recovery="hold"'))
    worker = spawn("worker", str(situations), "--no-sweeper")
    buoy("start", f"{situations}:failing", "--arg", f"witness={buoy.witness}", "--id", "r")
    until(lambda: "slow" in buoy.seen(), worker)
    worker.send(signal.SIGKILL)
    worker.wait()
    said = buoy("worker", str(situations), "--until-idle").stdout
    assert "paused r (failing): hold: " in said and "took r" not in said


def test_workers_of_another_env_are_named_with_the_way_to_set_one(
    buoy: Buoy, spawn: Spawn, situations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUOY_ENV", "e1")
    worker = spawn("worker", str(situations))
    monkeypatch.delenv("BUOY_ENV")
    buoy("start", f"{situations}:waits", "--id", "r")
    until(lambda: buoy.json("status", code=1)["runners"], worker)
    told = sections(buoy("why", "r").stdout)
    assert "works in the default env: the live ones work in env 'e1'" in told["Wrong"]
    assert "Q5 (no worker can run it)" in told["Evidence"]
    assert "nothing is lost" in told["Next"] and "BUOY_ENV" in told["Next"]
    assert "BUOY_ENV= buoy worker FILE.py" in told["You can"]


def test_a_process_killed_on_another_host_says_when_it_would_be_taken_over(
    buoy: Buoy, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(buoy, spawn)
    monkeypatch.setenv("BUOY_HOST", "far-away")
    told = sections(buoy("why", "p1").stdout)
    assert "its last heartbeat is number" in told["Evidence"] and "by the clock of" in told["Evidence"]
    assert "If it has died" in told["Next"] and "2 min" in told["Next"] and "45 s later" in told["Next"]
    assert "no worker and no sweeper is alive here" in told["Next"]
    assert "see at once whether it lives" in told["You can"] and "buoy sweeper --once" in told["You can"]


def test_a_stopped_worker_is_told_as_such_by_all_who_are_asked(buoy: Buoy, spawn: Spawn, situations: Path) -> None:
    worker = spawn("worker", str(situations))
    buoy("start", f"{situations}:naps", "--id", "r")
    begun(buoy, worker, "r", "waiting")
    freeze(worker.popen.pid, buoy.store)
    try:
        until(lambda: "is stopped" in buoy("why", "r").stdout)
        text = buoy("why", "r").stdout
        told = sections(text)
        assert "health suspect" in told[""] and f"process {worker.popen.pid}" in told["Wrong"]
        assert "Nothing happens until that process is continued or ended" in told["Next"]
        assert f"kill -CONT {worker.popen.pid}" in told["You can"] and "It continues by itself" not in text
        assert "is stopped" in buoy("status", code=1).stdout and "is stopped" in buoy("why", "--all", code=1).stdout
        buoy("start", f"{situations}:waits", "--id", "q")
        assert "the worker that could take it does not react" in buoy("why", "q").stdout
        assert "will handle it" in buoy("pause", "r").stdout
        assert "will handle it" in buoy("resume", "r").stdout  # the pause is not read yet, and must not win
    finally:
        worker.send(signal.SIGCONT)
    until(lambda: "health live" in buoy("why", "r").stdout, worker)


def test_a_step_that_blocks_its_worker_is_named_by_all_who_are_asked(
    buoy: Buoy, spawn: Spawn, situations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worker reports after some seconds; whether that is long already is another matter.
    monkeypatch.setattr("buoy.core.diagnosis.takers.LOOP_HELD_S", 0.0)
    worker = spawn("worker", str(situations))
    buoy("start", f"{situations}:naps", "--id", "r")
    begun(buoy, worker, "r", "waiting")
    buoy("start", f"{situations}:blocks", "--arg", f"witness={buoy.witness}", "--id", "b")
    until(lambda: "blocking" in buoy.seen(), worker)
    until(lambda: "has held the event loop" in buoy("why", "r").stdout, worker)
    told = sections(buoy("why", "r").stdout)
    assert "Step blocking#1 of run b" in told[""] and "health suspect" in told[""]
    assert "situations.py:" in told["Wrong"] and "When that call returns" in told["Next"]
    assert "plain `def` step" in told["You can"] and f"kill -9 {worker.popen.pid}" in told["You can"]
    assert buoy("why", "b").stdout.startswith("b blocks its whole worker")
    buoy("start", f"{situations}:waits", "--id", "q")
    assert "blocked for" in buoy("why", "q").stdout and "blocked for" in buoy("status", code=1).stdout
    Path(f"{buoy.witness}.go").touch()
    until(lambda: "health live" in buoy("why", "r").stdout, worker)


def test_a_question_with_a_time_out_names_the_timer_that_ends_it(buoy: Buoy, situations: Path) -> None:
    buoy("start", f"{situations}:asks", "--id", "r")
    buoy("worker", str(situations), "--until-idle")
    told = sections(buoy("why", "r").stdout)
    assert "timer#1" in told["Next"] and "(in " in told["Next"] and "even without an answer" in told["Next"]
    assert "however long" not in told["Next"]


def test_a_workflow_that_can_never_continue_is_told_as_that(buoy: Buoy, spawn: Spawn, situations: Path) -> None:
    worker = spawn("worker", str(situations))
    buoy("start", f"{situations}:stuck", "--id", "r")
    until(lambda: "can never continue" in buoy("why", "r").stdout, worker)
    told = sections(buoy("why", "r").stdout)
    assert "no step, question, signal, timer or child is open" in told[""] and "health stalled" in told[""]
    assert "W1 (waits for nothing)" in told["Wrong"] and "no event can wake it" in told["Next"]
    assert "buoy cancel r" in told["You can"]
    assert "W1 (waits for nothing)" in buoy("why", "--all", code=1).stdout
    buoy("cancel", "r")
    begun(buoy, worker, "r", "cancelled")


def test_a_worker_until_idle_ends_although_a_run_can_never_continue(buoy: Buoy, situations: Path) -> None:
    buoy("start", f"{situations}:stuck", "--id", "r")
    buoy("start", f"{situations}:asks", "--id", "q")
    said = buoy("worker", str(situations), "--until-idle").stdout
    assert "r waits for nothing and can never continue; see `buoy why r`" in said
    assert "waiting or paused: 2 runs" in said and "q waits for nothing" not in said


def test_a_long_step_of_a_healthy_worker_is_a_notice_wherever_one_looks(
    buoy: Buoy, spawn: Spawn, situations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = spawn("worker", str(situations))
    buoy("start", f"{situations}:long_one", "--arg", f"witness={buoy.witness}", "--id", "r")
    until(lambda: "slow" in buoy.seen(), worker)
    # An hour does not pass in a test: any standstill counts as long.
    monkeypatch.setattr("buoy.operations.inspect.explanation.STALE_AFTER_S", 0.0)
    monkeypatch.setattr("buoy.operations.inspect.troubles.STALE_AFTER_S", 0.0)
    monkeypatch.setattr("buoy.operations.maintenance.status.STALE_AFTER_S", 0.0)
    told = sections(buoy("why", "r").stdout)
    assert "health live" in told[""] and "Wrong" not in told
    assert "may hang" in told["Next"] and "its worker is alive" in told["Next"]
    assert f"kill -9 {worker.popen.pid}" in told["You can"] and "same idempotency key" in told["You can"]
    assert "timeout=" in told["You can"]
    everywhere = buoy.json("why", "--all")
    assert everywhere["troubles"] == [] and everywhere["notices"][0]["code"] == "H3"
    status = buoy.json("status")
    assert status["troubles"] == [] and "nothing in it has moved" in status["notices"][0]
    swept = buoy("sweeper", "--once", "--stale-after", "0")
    assert "H3" in swept.stdout and swept.stderr == "", "cron writes a mail for what stands on stderr"
    buoy("sweeper", "--once", "--stale-after", "0", "--strict", code=1)


def damaged(buoy: Buoy, body: bytes) -> None:
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        connection.execute("UPDATE log SET body = ? WHERE first_seq = 1", (body,))


def test_a_damaged_log_names_the_ways_back_and_the_dead_process(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    damaged(buoy, b'{"no": "events"}')
    told = sections(buoy("why", "p1").stdout)
    assert "health unknown" in told[""] and "has ended too" in told["Wrong"]
    assert "Buoy does not act on what it cannot read" in told["Next"]
    assert "keep a copy" in told["You can"] and "backup" in told["You can"] and "buoy doctor" in told["You can"]


def document_of(buoy: Buoy, run_id: str) -> dict[str, Any]:
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        (found,) = connection.execute("SELECT doc FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    document: dict[str, Any] = json.loads(found)
    return document


def test_a_wrong_summary_is_told_without_the_inside_of_python(buoy: Buoy, situations: Path) -> None:
    buoy("start", f"{situations}:waits", "--id", "r")
    buoy("worker", str(situations), "--until-idle")
    document = document_of(buoy, "r") | {"open": [], "open_count": 0}
    with sqlite3.connect(buoy.folder / "buoy.db") as connection:
        connection.execute("UPDATE runs SET doc = ? WHERE run_id = 'r'", (json.dumps(document),))
    text = buoy("why", "r").stdout
    told = sections(text)
    assert "OpenLeaf" not in text and "what is open = nothing" in text and "signal:go#1 (signal)" in text
    assert "R2 (wrong summary)" in told["Wrong"]
    assert "The log is the truth" in told["Next"] and "buoy recover r" in told["You can"]


def limited(buoy: Buoy, *words: str, bytes_max: int = 48 * 1024) -> tuple[int, str]:
    """The command in a process that may write files of that size only: as on a full disk, without filling one."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))

    command = [sys.executable, "-m", "buoy", *words, "--store", buoy.store]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, cwd=buoy.folder, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_store_that_takes_no_data_is_told_before_anything_else(buoy: Buoy, spawn: Spawn, situations: Path) -> None:
    worker = spawn("worker", str(situations))
    buoy("start", f"{situations}:long_one", "--arg", f"witness={buoy.witness}", "--id", "r")
    until(lambda: "slow" in buoy.seen(), worker)
    assert "cannot be written" not in buoy("why", "r").stdout
    code, text = limited(buoy, "why", "r")
    told = sections(text)
    assert code == 0 and "cannot continue: its store cannot be written" in told[""], text
    assert "File too large" in told["Wrong"] and str(buoy.folder) in told["Wrong"] and "bytes free" in told["Wrong"]
    assert "Nothing until the store can be written again" in told["Next"] and "same idempotency key" in told["Next"]
    assert "raise the limit" in told["You can"] and "When the step ends" not in text
    for words in (("status",), ("why", "--all"), ("doctor",)):
        code, text = limited(buoy, *words)
        assert code == 1 and "the store cannot be written" in text, text
    assert not list(buoy.folder.glob(".buoy-probe-*"))


def test_a_store_that_takes_no_data_is_told_of_a_dead_worker_too(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    code, text = limited(buoy, "why", "p1")
    told = sections(text)
    assert code == 0 and "health dead" in told[""] and "is dead" in told["Wrong"]
    assert "the store cannot be written" in told["Wrong"]
    assert "Nothing until the store can be written again" in told["Next"]


def test_a_paused_run_without_a_task_is_left_alone_and_resumes(buoy: Buoy, situations: Path) -> None:
    buoy("start", f"{situations}:waits", "--id", "r")
    buoy("worker", str(situations), "--until-idle")
    buoy("pause", "r", "--reason", "look first")
    change(buoy, "DELETE FROM tasks WHERE run_id = 'r'")
    told = sections(buoy("why", "r").stdout)
    assert "health idle" in told[""] and "Paused by" in told[""] and "look first" in told[""]
    assert "it is in no queue, and needs none" in told["Evidence"] and "Wrong" not in told
    assert "buoy resume r" in told["You can"]
    swept = buoy.json("sweeper", "--once", "--stale-after", "0")
    assert (swept["scanned"], swept["healthy"], swept["resumed"]) == (1, 1, 0)
    assert buoy.json("why", "--all")["troubles"] == []
    buoy("resume", "r")
    buoy("signal", "r", "go", "7")
    buoy("worker", str(situations), "--until-idle")
    assert buoy("result", "r").stdout == "7\n"


CASES = Path(__file__).parents[1] / "cases"


@pytest.mark.parametrize(
    ("case", "run_id", "happened", "does"),
    [
        ("a1_answered_and_gone_on", "a1", "its process ended before its summary said so", "is not asked again"),
        ("a2_question_open_document_running", "a2", "asked its question, and its process ended", "under the same id"),
        ("a3_all_steps_completed", "a3", "before the end of the run was recorded", "No step is executed again"),
    ],
)
def test_a_broken_state_says_what_happened_and_what_buoy_does(
    buoy: Buoy, case: str, run_id: str, happened: str, does: str
) -> None:
    buoy("import", "--as-found", str(CASES / case / "bundle.json"))
    told = sections(buoy("why", run_id).stdout)
    assert happened in told[""] and does in told["Next"]
    assert "as soon as you start a worker" in told["Next"] and "none is alive" in told["Next"]
    assert f"buoy recover {run_id}" in told["You can"]


def read_only(buoy: Buoy, *words: str) -> tuple[str, str]:
    """What the command says where the disk of the store is mounted read-only, and how that was made.

    In a mount namespace of its own; where the system allows none, the folder loses its permissions instead.
    """
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    away = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", mount, "sh"]
    command = [sys.executable, "-m", "buoy", *words, "--store", buoy.store]
    try:
        subprocess.run([*away, str(buoy.folder), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        buoy.folder.chmod(0o500)
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout, "not permitted"
        finally:
            buoy.folder.chmod(0o700)
    done = subprocess.run([*away, str(buoy.folder), *command], capture_output=True, text=True, check=False)
    return done.stdout, "read-only"


def test_a_worker_that_was_killed_is_dead_also_on_a_read_only_disk(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    text, how = read_only(buoy, "why", "p1")
    told = sections(text)
    assert "health dead" in told[""] and "is dead and still holds the run" in told["Wrong"], text
    assert "lock that it held while it lived is free" in told["Evidence"]
    if how == "read-only":
        assert "its disk is mounted read-only" in told["Wrong"] and "mount the disk for writing" in told["You can"]
        assert "Nothing until the store can be written again" in told["Next"]
