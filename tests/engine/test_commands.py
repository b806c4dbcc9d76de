"""Commands of specs: how they end in words, what they receive, and that they never outlive their runner."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.step_logs import log_name, parse_log_name
from buoy.engine.spec.source import SpecSource
from buoy.engine.spec.workflow import SpecWorkflow, spec_of
from buoy.errors import BadInput
from buoy.host.clock import SystemClock
from buoy.host.shell.shell import GuardedShell
from buoy.ports.host import Command
from tests.patience import PATIENCE_S, wait_until

from .harness import QUICK_STOP, bodies_of, log_of, opened, result_of, until, until_event


def spec(*steps: str, top: str = "") -> SpecWorkflow:
    text = "name: x\n" + top + "steps:\n" + "".join(f"  - {each}\n" for each in steps)
    return spec_of(SpecSource("test.yaml", text), calls=None)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def failure(url: str, workflow: SpecWorkflow) -> e.ErrorInfo:
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        with pytest.raises(buoy.RunFailed):
            await run.result()
        return (await bodies_of(app, "r1", e.StepFailed))[-1].error


async def test_a_command_gives_its_result_and_is_measured(url: str) -> None:
    workflow = spec(
        "{id: a, run: 'echo hello; echo [1, 2] > $BUOY_RESULT_FILE'}",
        "{id: b, run: 'echo plain words > $BUOY_RESULT_FILE'}",
        top='result: ["{{ steps.a }}", "{{ steps.b.result }}"]\n',
    )  # fmt: skip
    async with opened(url, workflow) as app:
        found, text = await result_of(app, await app.start_as("r1", workflow))
    assert (found["exit_code"], found["result"], found["log"], text) == (0, [1, 2], "a#1.1.log", "plain words")
    assert 0 < found["duration_s"] < PATIENCE_S
    assert found["peak_memory_bytes"] > 100_000


async def test_a_command_is_told_where_it_stands(url: str, tmp_path: Path) -> None:
    names = "$BUOY_RUN_ID $BUOY_STEP $BUOY_LEAF $BUOY_ATTEMPT $BUOY_IDEMPOTENCY_KEY $who"
    workflow = spec(f"{{id: a, run: 'echo {names} > told; pwd >> told', with: {{who: 'a b'}}}}")
    async with opened(url, workflow) as app:
        await result_of(app, await app.start_as("r1", workflow, directory=str(tmp_path)))
    assert (tmp_path / "told").read_text() == f"r1 a a#1 1 r1/a#1/0 a b\n{tmp_path}\n"


@pytest.mark.parametrize(
    ("command", "kind", "text", "facts"),
    [
        ("echo oh no; exit 3", "ExitCode", "exit code 3 after", {"exit_code": 3}),
        ("kill -TERM $$", "Killed", "ended by SIGTERM", {"exit_code": None, "signal": "SIGTERM"}),
        ("kill -KILL $$", "Killed", "Buoy did not send it: perhaps too little memory", {"signal": "SIGKILL"}),
        ("sh -c 'kill -KILL $$'; exit $?", "Killed", "exit code 137, which is the shell's word", {"exit_code": 137}),
        ("kill -SEGV $$", "Killed", "ended by SIGSEGV", {"signal": "SIGSEGV"}),
        ("/no/such/program", "ExitCode", "exit code 127: the command was not found", {"exit_code": 127}),
    ],
)  # fmt: skip
async def test_how_a_command_ended_is_told_in_words(
    url: str, command: str, kind: str, text: str, facts: dict[str, Any]
) -> None:
    found = await failure(url, spec(f"id: a\n    run: |\n      {command}"))
    assert found.type == kind
    assert text in found.message
    assert facts.items() <= found.facts.items()
    assert "log a#1.1.log" in found.message
    if "oh no" in command:
        assert found.message.endswith("oh no")


async def test_a_command_in_a_folder_that_is_not_there_says_so(url: str) -> None:
    found = await failure(url, spec("{id: a, run: 'true'}", top="parameters: {directory: /no/such/folder}\n"))
    assert (found.type, found.kind) == ("NotStarted", "misconfiguration")
    assert "directory '/no/such/folder' is not there" in found.message


async def test_a_command_that_takes_too_long_is_stopped(url: str, tmp_path: Path) -> None:
    workflow = spec(f"{{id: a, run: 'echo $$ > {tmp_path}/pid; exec sleep 100', timeout: 5s}}")
    found = await failure(url, workflow)
    assert found.type == "TimeoutError"
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_cancelled_run_stops_its_commands(url: str, tmp_path: Path) -> None:
    workflow = spec(f"{{id: a, run: 'sleep 100 & echo $! > {tmp_path}/pid; wait'}}")
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow)
        await until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        await run.cancel()
        with pytest.raises(buoy.RunCancelled):
            await run.result()
        pid = int((tmp_path / "pid").read_text())
        await until(lambda: not alive(pid), "the end of the command")


async def test_output_of_every_attempt_is_kept(url: str, tmp_path: Path) -> None:
    workflow = spec("{id: a, run: 'echo try $BUOY_ATTEMPT; test $BUOY_ATTEMPT = 2', retries: 2, backoff: 1ms}")
    async with opened(url, workflow) as app:
        await result_of(app, await app.start_as("r1", workflow))
    logs = tmp_path / "runs.db-logs" / "r1"
    assert [(logs / f"a#1.{n}.log").read_text() for n in (1, 2)] == ["try 1\n", "try 2\n"]


@pytest.mark.parametrize("makes", ["mkfifo", "mkdir"])
async def test_a_result_file_that_is_no_file_is_refused(makes: str, tmp_path: Path) -> None:
    shell = GuardedShell(tmp_path, SystemClock())
    with pytest.raises(buoy.BadInput, match="the result file"):
        await shell.run(order(tmp_path, f'{makes} "$BUOY_RESULT_FILE"'))


async def test_what_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    shell = GuardedShell(tmp_path, SystemClock())
    await shell.run(order(tmp_path, f"sleep 100 & echo $! > {tmp_path}/pid"))
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_stopped_command_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    shell = GuardedShell(tmp_path, SystemClock())
    going = asyncio.ensure_future(
        shell.run(order(tmp_path, f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 1; done"))
    )
    await until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_command_waits_until_nothing_of_its_earlier_start_is_left(tmp_path: Path) -> None:
    shell = GuardedShell(tmp_path, SystemClock())
    slow = (
        f"trap 'sleep 0.3; echo old >> {tmp_path}/order; exit' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    )
    first = asyncio.ensure_future(shell.run(order(tmp_path, slow, grace_s=PATIENCE_S)))
    await until(lambda: (tmp_path / "up").exists())
    second = asyncio.ensure_future(shell.run(order(tmp_path, f"echo new >> {tmp_path}/order")))
    first.cancel()
    assert (await second).exit_code == 0
    assert (tmp_path / "order").read_text() == "old\nnew\n"


async def test_a_guard_that_is_killed_takes_its_command_with_it(tmp_path: Path) -> None:
    shell = GuardedShell(tmp_path, SystemClock())
    going = asyncio.ensure_future(shell.run(order(tmp_path, f"echo $$ $PPID > {tmp_path}/pids; exec sleep 100")))
    await until(lambda: (tmp_path / "pids").exists() and bool((tmp_path / "pids").read_text()))
    command, guard = map(int, (tmp_path / "pids").read_text().split())
    os.kill(guard, signal.SIGKILL)
    with pytest.raises(buoy.StepFailed, match="the guard of the command ended without a word"):
        await going
    await until(lambda: not alive(command))


def order(folder: Path, command: str, grace_s: float = 0.5) -> Command:
    return Command(
        run_id=RunId("r1"), leaf=LeafId("a#1"), attempt=1, command=command, directory=str(folder), grace_s=grace_s
    )


@pytest.mark.parametrize("leaf", ["../x#1", "a", "a#x", "a.b#1", "/a#1", "a//b#1", "a/../b#1", "a\0#1", "#1"])
def test_a_leaf_that_is_no_file_name_is_refused(leaf: str) -> None:
    with pytest.raises(BadInput):
        log_name(LeafId(leaf), 1)


def test_log_names_are_read_back() -> None:
    assert log_name(LeafId("gather/fetch#1"), 2) == "gather.fetch#1.2.log"
    assert parse_log_name("gather.fetch#1.2.log") == ("gather/fetch#1", 2)
    assert [parse_log_name(each) for each in ("x.lock", "a#1.1.result", "a.log", "..#1.1.log")] == [None] * 4


# ---- kill -9

RUNNER = """
import asyncio, sys
import buoy
from buoy.engine.spec.workflow import load_spec

async def main():
    workflow = load_spec(sys.argv[1])
    async with buoy.open(sys.argv[2], workflows=[workflow]) as app:
        run = await app.start_as("killed", workflow)
        await run.result()

asyncio.run(main())
"""


def test_a_killed_runner_takes_its_commands_with_it_and_the_run_goes_on(url: str, tmp_path: Path) -> None:
    """SIGKILL leaves the runner no chance; the guard sees the pipe close."""
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: x\nsteps:\n"
        f"  - {{id: first, run: 'echo first >> {tmp_path}/ran'}}\n"
        f"  - id: long\n    run: |\n      echo long >> {tmp_path}/ran\n"
        f"      if [ -e {tmp_path}/again ]; then exit 0; fi\n"
        f"      sleep 100 &\n      echo $$ $! $PPID > {tmp_path}/pids.new; mv {tmp_path}/pids.new {tmp_path}/pids\n"
        "      wait\n"
    )
    process = subprocess.Popen([sys.executable, "-c", RUNNER, str(path), url], cwd=tmp_path)
    try:
        wait_until((tmp_path / "pids").exists, "the command")
        pids = [int(each) for each in (tmp_path / "pids").read_text().split()]
        assert all(map(alive, pids))
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(map(alive, pids)), "the end of command, child and guard")
    (tmp_path / "again").touch()
    workflow = spec("{id: unused, run: 'true'}")

    async def go_on() -> list[e.Event]:
        async with buoy.open(url, workflows=[workflow], options=QUICK_STOP, specs=True) as app:
            await until_event(app, "killed", "workflow_completed")
            return await log_of(app, "killed")

    log = asyncio.run(go_on())
    assert (tmp_path / "ran").read_text() == "first\nlong\nlong\n"
    claims = [event.body.cause for event in log if isinstance(event.body, e.Claimed)]
    assert claims == ["created", "taken_over"]
    started = [event.body for event in log if isinstance(event.body, e.StepStarted) and event.body.leaf == "long#1"]
    assert len(started) == 1, "the same attempt continues"


async def test_a_disk_that_does_not_answer_does_not_stop_the_loop(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declared files are looked at in a thread, before a command and after it."""
    workflow = spec("{id: a, run: 'touch made', outputs: [made]}", "{id: b, run: 'touch more', inputs: [made]}")
    real, asked = Path.exists, list[bool]()

    def exists(path: Path) -> bool:
        if path == tmp_path / "made":
            asked.append(threading.current_thread() is threading.main_thread())
        return real(path)

    monkeypatch.setattr(Path, "exists", exists)
    async with opened(url, workflow) as app:
        await result_of(app, await app.start_as("r1", workflow, directory=str(tmp_path)))
    assert asked == [False, False]
