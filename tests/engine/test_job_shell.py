"""The shell of job runners: one guard for all commands, limits that commands try to break, and a dead guard."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import buoy
from buoy.core.ids import LeafId, RunId
from buoy.host.clock import SystemClock
from buoy.host.jobs import shell
from buoy.host.jobs.shell import JobShell
from buoy.ports.host import Command
from tests.patience import PATIENCE_S, until

PYTHON = sys.executable


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[JobShell]:
    made = JobShell(folder / "logs")
    try:
        yield made
    finally:
        await made.close()


def order(
    folder: Path, command: str, *, leaf: str = "a#1", memory: int = 0, grace_s: float = 0.5, again: bool = False,
    lane: str = "", places: int = 0, log_max: int = 0,
) -> Command:  # fmt: skip
    return Command(
        run_id=RunId("r1"),
        leaf=LeafId(leaf),
        attempt=1,
        command=command,
        directory=str(folder),
        grace_s=grace_s,
        memory_max_bytes=memory,
        log_max_bytes=log_max,
        again=again,
        lane=lane,
        places=places,
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def pids(folder: Path, count: int = 1) -> list[int]:
    """The numbers that a command wrote into the file `pids`, one per line."""
    file = folder / "pids"
    await until(lambda: file.exists() and len(file.read_text().splitlines()) >= count, "the PIDs")
    return [int(each) for line in file.read_text().splitlines() for each in line.split()]


async def test_one_guard_runs_many_commands_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        command = "echo $PPID >> pids; echo out; echo [1] > $BUOY_RESULT_FILE; exit 3"
        ends = await asyncio.gather(*(shell.run(order(tmp_path, command, leaf=f"a{k}#1")) for k in range(20)))
        assert {(end.exit_code, end.signal, end.tail, end.result) for end in ends} == {(3, None, "out", b"[1]\n")}
        assert len(set(await pids(tmp_path, 20))) == 1
        assert (tmp_path / "logs" / "r1" / "a7#1.1.log").read_text() == "out\n"


@pytest.mark.parametrize(
    "left",
    [
        "sleep 1000 & echo $! > pids",
        "setsid sleep 1000 & echo $! > pids",
        "(setsid sh -c 'echo $$ > pids; exec sleep 1000' > /dev/null 2>&1 &); until test -s pids; do sleep 0.01; done",
        "(trap '' TERM; exec setsid sleep 1000) & echo $! > pids",
    ],
)
async def test_whatever_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path, left: str) -> None:
    async with opened(tmp_path) as shell:
        end = await shell.run(order(tmp_path, left))
        assert end.exit_code == 0
        assert not any(alive(pid) for pid in await pids(tmp_path))


async def test_a_stopped_command_that_ignores_sigterm_is_killed_with_its_strays(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        loop = "setsid sh -c 'echo $$ >> pids; while :; do sleep 1; done'"
        deaf = f"trap '' TERM; {loop} & echo $$ >> pids; wait; sleep 1000"
        going = asyncio.ensure_future(shell.run(order(tmp_path, deaf)))
        found = await pids(tmp_path, 2)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert not any(alive(pid) for pid in found)


async def test_a_stop_of_one_command_leaves_the_others_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        other = asyncio.ensure_future(shell.run(order(tmp_path, "until test -e go; do sleep 0.01; done", leaf="b#1")))
        going = asyncio.ensure_future(shell.run(order(tmp_path, "echo $$ > pids; exec sleep 1000")))
        await pids(tmp_path)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        (tmp_path / "go").touch()
        assert (await other).exit_code == 0


_EATER = f"{PYTHON} -c 'import time; data = bytearray(40_000_000); time.sleep(1000)'"


@pytest.mark.parametrize("how", [f"{_EATER} & {_EATER} & wait", f"(setsid {_EATER} &); sleep 1000", f"exec {_EATER}"])
async def test_the_memory_of_the_whole_tree_counts(tmp_path: Path, how: str) -> None:
    async with opened(tmp_path) as shell:
        limit = 60_000_000 if "&" in how and "setsid" not in how else 30_000_000
        end = await shell.run(order(tmp_path, f"echo $$ > pids; {how}", memory=limit))
        assert end.over_memory
        assert end.signal == signal.SIGKILL
        assert end.peak_memory_bytes > limit
        assert not any(alive(pid) for pid in await pids(tmp_path))


async def test_a_guard_that_is_killed_takes_its_commands_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        going = asyncio.ensure_future(shell.run(order(tmp_path, "echo $$ $PPID > pids; exec sleep 1000")))
        command, guard = await pids(tmp_path)
        os.kill(guard, signal.SIGKILL)
        with pytest.raises(buoy.StepFailed, match="the guard of the command ended without a word"):
            await going
        await until(lambda: not alive(command))
        assert (await shell.run(order(tmp_path, "true"))).exit_code == 0


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        with pytest.raises(buoy.StepFailed, match=r"directory '.*nowhere' is not there"):
            await shell.run(order(tmp_path / "nowhere", "true"))


async def test_a_command_waits_until_nothing_of_its_earlier_start_is_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        slow = "trap 'sleep 0.3; echo old >> order; exit' TERM; echo $$ > pids; while :; do sleep 0.05; done"
        first = asyncio.ensure_future(shell.run(order(tmp_path, slow, grace_s=60)))
        await pids(tmp_path)
        second = asyncio.ensure_future(shell.run(order(tmp_path, "echo new >> order")))
        first.cancel()
        assert (await second).exit_code == 0
        assert (tmp_path / "order").read_text() == "old\nnew\n"


_RUNNER = """
import asyncio, sys
from pathlib import Path
from buoy.host.jobs import shell
from buoy.host.jobs.shell import JobShell
from tests.engine.test_job_shell import order
folder = Path(sys.argv[1])
asyncio.run(JobShell(folder / "logs").run(order(folder, sys.argv[2])))
"""


def _runner(folder: Path, command: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    return subprocess.Popen([PYTHON, "-c", _RUNNER, str(folder), command], cwd=root, start_new_session=True)


async def test_commands_end_with_their_runner(tmp_path: Path) -> None:
    runner = _runner(tmp_path, "setsid sh -c 'echo $$ >> pids; exec sleep 1000' & echo $$ >> pids; wait")
    found = await pids(tmp_path, 2)
    runner.kill()
    runner.wait(PATIENCE_S)
    await until(lambda: not any(alive(pid) for pid in found))


async def test_what_a_dead_guard_left_is_killed_before_the_same_command_begins(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        runner = _runner(
            tmp_path, "setsid sh -c 'echo $$ $PPID >> pids; exec sleep 1000' & echo $$ $PPID >> pids; wait"
        )
        numbers = await pids(tmp_path, 2)
        guard = int(Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()[0])
        runner.kill()
        os.kill(guard, signal.SIGKILL)
        runner.wait(PATIENCE_S)
        assert (await shell.run(order(tmp_path, "true", again=True))).exit_code == 0
        assert not any(alive(pid) for pid in numbers if pid != guard)


async def test_commands_of_one_lane_run_one_after_another_without_a_word(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        run = "echo begun >> order; test -e hold && sleep 0.2; echo ended >> order"
        (tmp_path / "hold").touch()
        orders = [order(tmp_path, run, leaf=f"a{k}#1", lane="c1", places=1) for k in range(6)]
        clock = SystemClock()
        began = clock.monotonic()
        ends = await asyncio.gather(*map(shell.run, orders))
        assert {end.exit_code for end in ends} == {0}
        assert (tmp_path / "order").read_text().split() == ["begun", "ended"] * 6
        # The wait in the lane is no part of a command's time.
        assert sum(end.duration_s for end in ends) <= clock.monotonic() - began


async def test_a_command_that_is_stopped_in_its_lane_never_begins(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        hold = "echo $$ > pids; until test -e go; do sleep 0.01; done"
        first = asyncio.ensure_future(shell.run(order(tmp_path, hold, lane="c1", places=1)))
        await pids(tmp_path)
        second = asyncio.ensure_future(shell.run(order(tmp_path, "touch second", leaf="b#1", lane="c1", places=1)))
        third = asyncio.ensure_future(shell.run(order(tmp_path, "touch third", leaf="c#1", lane="c1", places=1)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        (tmp_path / "go").touch()
        assert [(await each).exit_code for each in (first, third)] == [0, 0]
        assert not (tmp_path / "second").exists()
        assert (tmp_path / "third").exists()


async def test_a_log_has_a_name_once_its_command_has_written_failed_or_lasted(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "r1"
    async with opened(tmp_path) as shell:
        for leaf, run in (("mute#1", "true"), ("bad#1", "exit 3"), ("loud#1", "echo loud"), ("next#1", "true")):
            await shell.run(order(tmp_path, run, leaf=leaf))
        going = asyncio.ensure_future(shell.run(order(tmp_path, "sleep 1000", leaf="long#1")))
        await until((logs / "long#1.1.log").exists, "the log of a command that runs")
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
    assert (logs / "bad#1.1.log").read_text() == ""
    assert (logs / "loud#1.1.log").read_text() == "loud\n"
    assert (logs / "loud#1.1.log").stat().st_mode & 0o777 == 0o600


async def test_what_ended_just_before_its_runner_died_does_not_run_again(tmp_path: Path) -> None:
    """The runner is halted, so that it cannot hear of the end, and then killed."""
    command = "echo $$ >> pids; until test -e go; do sleep 0.01; done; echo [7] > $BUOY_RESULT_FILE; echo done >> pids2"
    runner = _runner(tmp_path, command)
    await pids(tmp_path)
    os.kill(runner.pid, signal.SIGSTOP)
    (tmp_path / "go").touch()
    told = tmp_path / "logs" / "r1" / "a#1.1.told"
    await until((tmp_path / "pids2").exists, "the end of the command")
    guard = int(Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()[0])
    await until(lambda: not Path(f"/proc/{guard}/task/{guard}/children").read_text().split(), "the guard to see it")
    runner.kill()
    runner.wait(PATIENCE_S)
    await until(told.exists, "the end on disk")
    assert told.stat().st_mode & 0o777 == 0o600
    async with opened(tmp_path) as shell:
        end = await shell.run(order(tmp_path, "touch again", again=True))
        assert (end.exit_code, end.result) == (0, b"[7]\n")
        assert not (tmp_path / "again").exists()


async def test_a_flood_of_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    most = 1 << 20
    log = tmp_path / "logs" / "r1" / "flood#1.1.log"
    # 64 MB in all; the other command writes little and keeps all of it.
    flood = "echo first; yes 0123456789 | head -c 64000002; until test -e go; do sleep 0.01; done; echo last; exit 3"
    async with opened(tmp_path) as shell:
        other = asyncio.ensure_future(shell.run(order(tmp_path, "seq 1 1000", leaf="other#1", log_max=most)))
        going = asyncio.ensure_future(shell.run(order(tmp_path, flood, leaf="flood#1", log_max=most)))
        # While it runs, and not only at its end.
        await until(lambda: log.exists() and b"bytes dropped here" in log.read_bytes(), "the log to be shortened")
        (tmp_path / "go").touch()
        end = await going
        assert (await other).exit_code == 0
    text = log.read_text()
    assert len(text) <= most
    assert text.startswith("first\n0123456789\n")
    assert text.endswith("last\n")
    assert end.tail.endswith("last")
    dropped = int(text.partition("about ")[2].partition(" bytes")[0].replace(",", ""))
    # What the command writes in the very moment of a cut is lost, and not counted.
    assert 1_000_000 < dropped <= 64_000_002
    assert text.count(f"\n[buoy: about {dropped:,} bytes dropped here: a log keeps at most {most:,}]\n") == 1
    assert (tmp_path / "logs" / "r1" / "other#1.1.log").read_text().count("\n") == 1000


async def test_a_command_that_ends_at_once_has_no_longer_log_than_it_may(tmp_path: Path) -> None:
    async with opened(tmp_path) as shell:
        await shell.run(order(tmp_path, "seq 1 20000", log_max=8192))
    text = (tmp_path / "logs" / "r1" / "a#1.1.log").read_text()
    assert len(text) <= 8192
    assert text.startswith("1\n2\n")
    assert text.endswith("\n20000\n")


def test_files_of_the_kernel_are_read_in_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of /proc may stand still under pressure of memory, and must not stop the other runs of the process."""
    readers: list[threading.Thread] = []

    def noted() -> int:
        readers.append(threading.current_thread())
        return 0

    monkeypatch.setattr(shell, "oom_kills", noted)

    async def play() -> None:
        async with opened(tmp_path) as made:
            await made.run(order(tmp_path, "exit 0"))
            await made.run(order(tmp_path, "exit 3", leaf="b#1", memory=1 << 30))

    asyncio.run(play())
    assert len(readers) == 3, "before the first, before one with a limit, after one that failed"
    assert threading.main_thread() not in readers
