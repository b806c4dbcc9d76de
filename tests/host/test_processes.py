"""Time, ids, and proof of death by real processes that hold locks, stop and are killed."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from buoy.core.ids import RunnerId, check_run_id
from buoy.errors import StoreUnusable
from buoy.host import processes
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.host.lock_files import LockFiles
from buoy.host.processes import Processes
from buoy.host.threads import SystemThreads
from buoy.ports.records import Beat, RunnerInfo, RunnerRecord
from tests.patience import PATIENCE_S

ANNOUNCE = """
import sys
from pathlib import Path
from buoy.host.lock_files import LockFiles
LockFiles(Path(sys.argv[1])).announce(sys.argv[2])
print("announced", flush=True)
sys.stdin.read()
"""


@contextmanager
def runner_process(lock_dir: Path, runner: str) -> Iterator[subprocess.Popen[str]]:
    """A real process that holds a runner's lock until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCE, str(lock_dir), runner],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "announced\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def record(runner: str, pid: int | None = None, **more: str) -> RunnerRecord:
    """What a runner of this host, in this boot, says of itself."""
    pid = os.getpid() if pid is None else pid
    info = RunnerInfo(
        id=RunnerId(runner),
        host=processes.host(),
        boot_id=processes.boot_id(),
        pid_namespace=processes.pid_namespace(),
        pid=pid,
        process_started=processes.process_started(pid),
        nonce="n",
    )
    return RunnerRecord(msgspec.structs.replace(info, **more), registered_at=0.0, beat_at=0.0, beat=Beat(number=0))


def test_a_living_runner_is_not_dead_and_a_killed_one_is(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    with runner_process(tmp_path, "r1") as process:
        about = record("r1", process.pid)
        assert locks.sight(about).proof is None
        process.kill()
        process.wait()
        proof = locks.sight(about).proof
    assert proof == {
        "proof": "lock free",
        "host": socket.gethostname(),
        "pid": process.pid,
        "boot_id": processes.boot_id(),
    }


def test_a_zombie_that_nobody_has_waited_for_is_dead(tmp_path: Path) -> None:
    with runner_process(tmp_path, "r1") as process:
        about = record("r1", process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert LockFiles(tmp_path).sight(about).proof is not None
        (tmp_path / "r1.lock").unlink()
        proof = LockFiles(tmp_path).sight(about).proof
    assert proof is not None and proof["proof"] == "the process is gone"


def test_a_stopped_process_is_not_dead(tmp_path: Path) -> None:
    with runner_process(tmp_path, "r1") as process:
        about = record("r1", process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert LockFiles(tmp_path).sight(about).proof is None
        process.send_signal(signal.SIGCONT)
        assert LockFiles(tmp_path).sight(about).proof is None


LOOK = """
import sys
from pathlib import Path
from buoy.host.lock_files import LockFiles
locks = LockFiles(Path(sys.argv[1]))
print("looking", flush=True)
for _ in range(200_000):
    assert locks.lock_state(sys.argv[2]).state == "free"
"""


def test_two_who_look_at_the_dead_at_once_both_see_it(tmp_path: Path) -> None:
    (tmp_path / "r1.lock").touch()
    locks, dead = LockFiles(tmp_path), record("r1")
    with subprocess.Popen([sys.executable, "-c", LOOK, str(tmp_path), "r1"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"looking\n"
        try:
            blind = sum(locks.sight(dead).proof is None for _ in range(5_000))
            assert other.poll() is None, "the other one looked all the while, and was never in doubt"
        finally:
            other.kill()
    assert blind == 0


def test_looking_at_its_own_runners_does_not_drop_their_locks(tmp_path: Path) -> None:
    locks, others = LockFiles(tmp_path), LockFiles(tmp_path)
    locks.announce(RunnerId("mine"))
    for _ in range(3):
        assert locks.sight(record("mine")).proof is None
        assert others.sight(record("mine")).proof is None
        others.announce(RunnerId("mine"))
    probe = f"""
import fcntl, os
descriptor = os.open({str(tmp_path / "mine.lock")!r}, os.O_RDWR)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except OSError:
    print("held")
"""
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout == "held\n"
    locks.withdraw(RunnerId("mine"))
    assert list(tmp_path.iterdir()) == []


def test_a_runner_that_withdrew_in_a_living_process_is_not_proven_dead(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    locks.announce(RunnerId("mine"))
    locks.withdraw(RunnerId("mine"))
    locks.withdraw(RunnerId("mine"))
    assert locks.sight(record("mine")).proof is None


def test_a_forked_child_does_not_take_its_parent_s_runner_for_its_own(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    locks.announce(RunnerId("mine"))
    child = os.fork()
    if child == 0:
        alive = locks.sight(record("mine", os.getppid())).proof is None
        os._exit(0 if alive else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert locks.sight(record("mine")).proof is None
    locks.withdraw(RunnerId("mine"))


def test_two_processes_cannot_be_the_same_runner(tmp_path: Path) -> None:
    with runner_process(tmp_path, "r1"), pytest.raises(StoreUnusable, match="use each runner id once"):
        LockFiles(tmp_path).announce(RunnerId("r1"))


def test_a_runner_of_an_earlier_boot_is_dead(tmp_path: Path) -> None:
    for name in ("with-file", "without"):
        if name == "with-file":
            (tmp_path / f"{name}.lock").touch()
        proof = LockFiles(tmp_path).sight(record(name, boot_id="another")).proof
        assert proof is not None
        assert (proof["proof"], proof["boot_id"]) == ("the host was rebooted", "another")
        assert proof["boot_id_now"] == processes.boot_id()


def test_another_boot_is_no_proof_while_the_lock_is_held(tmp_path: Path) -> None:
    with runner_process(tmp_path, "r1") as process:
        assert LockFiles(tmp_path).sight(record("r1", process.pid, boot_id="another")).proof is None


def test_nothing_is_known_of_another_host(tmp_path: Path) -> None:
    (tmp_path / "r1.lock").touch()
    assert LockFiles(tmp_path).sight(record("r1", host="elsewhere")).proof is None
    assert LockFiles(tmp_path).sight(record("r1", host="elsewhere", boot_id="another")).proof is None


def test_a_node_may_be_given_a_name_and_its_locks_prove_nothing_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = LockFiles(tmp_path)
    (tmp_path / "r1.lock").touch()
    here = record("r1")
    assert locks.sight(here).seen and locks.sight(here).proof is not None
    monkeypatch.setenv("BUOY_HOST", "node-b")
    assert processes.host() == "node-b"
    assert not locks.sight(here).seen and locks.sight(here).proof is None
    assert not Processes().sight(here).seen
    mine = record("r1")
    assert mine.info.host == "node-b"
    assert locks.sight(mine).seen and locks.sight(mine).proof is not None
    monkeypatch.setenv("BUOY_HOST", " ")
    assert processes.host() == socket.gethostname()


def test_without_lock_files_the_process_is_the_proof(tmp_path: Path) -> None:
    with runner_process(tmp_path, "r1") as process:
        about = record("r1", process.pid)
        assert Processes().sight(about).seen and Processes().sight(about).proof is None
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert Processes().sight(about).proof is None, "stopped is not dead"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        zombie = Processes().sight(about).proof
        process.wait()
        proof = Processes().sight(about).proof
    expected = {
        "proof": "the process is gone",
        "host": socket.gethostname(),
        "pid": process.pid,
        "boot_id": processes.boot_id(),
    }
    assert zombie == proof == expected


def test_a_pid_that_somebody_else_has_now_proves_the_end() -> None:
    other = str(int(processes.process_started(os.getpid())) - 1)
    assert Processes().sight(record("r1", process_started=other)).proof is not None


@pytest.mark.parametrize("missing", [{}, {"process_started": ""}])
def test_a_process_that_cannot_be_told_from_others_is_not_dead(missing: dict[str, str]) -> None:
    assert Processes().sight(record("r1", **missing)).proof is None


@pytest.mark.parametrize(
    "elsewhere", [{"host": "other"}, {"boot_id": "other"}, {"pid_namespace": "pid:[1]"}, {"boot_id": ""}]
)
def test_a_process_of_another_world_is_not_seen_from_here(elsewhere: dict[str, str]) -> None:
    about = record("r1", 2**22 + 1, **elsewhere)
    assert not Processes().sight(about).seen
    assert Processes().sight(about).proof is None


def test_an_unreadable_process_is_not_dead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    about = record("r1")
    monkeypatch.setattr("buoy.host.processes._stat", lambda pid: (False, []))
    assert Processes().sight(about).proof is None


def test_a_missing_lock_file_is_proof_only_if_the_process_is_gone_too(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    with runner_process(tmp_path, "r1") as process:
        about = record("r1", process.pid)
        (tmp_path / "r1.lock").unlink()
        assert locks.sight(about).proof is None
        process.kill()
        process.wait()
        proof = locks.sight(about).proof
        assert proof is not None and proof["proof"] == "the process is gone"
        # In another PID namespace that number belongs to another process.
        foreign = msgspec.structs.replace(about.info, pid_namespace="pid:[1]")
        assert locks.sight(msgspec.structs.replace(about, info=foreign)).proof is None


def test_a_pid_that_was_given_out_again_is_another_process() -> None:
    started = processes.process_started(os.getpid())
    assert started
    assert not processes.process_gone(os.getpid(), started)
    assert processes.process_gone(os.getpid(), str(int(started) - 1))
    assert not processes.process_gone(os.getpid(), "")


def test_an_unreadable_lock_file_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "r1.lock").mkdir()
    assert LockFiles(tmp_path).sight(record("r1")).proof is None


def test_lock_files_are_private(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path / "sub" / "locks")
    locks.announce(RunnerId("mine"))
    path = tmp_path / "sub" / "locks" / "mine.lock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    locks.withdraw(RunnerId("mine"))


def test_the_process_knows_where_it_lives() -> None:
    assert processes.host() == socket.gethostname()
    assert len(processes.boot_id()) == 36
    assert processes.pid_namespace().startswith("pid:[")
    assert int(processes.process_started(os.getpid())) > 0
    assert processes.process_started(2**22 + 1) == ""


def test_ids_are_unique_sort_by_time_and_are_run_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = SystemIds()
    assert len({ids.new("run-") for _ in range(2_000)}) == 2_000
    times = iter([1_000_000, 2_000_000, 10**18, 2 * 10**18, 2**62])
    monkeypatch.setattr("buoy.host.ids.time.time_ns", lambda: next(times))
    later = [ids.new() for _ in range(5)]
    assert later == sorted(later)
    assert all(check_run_id(each) and len(each) == 20 for each in later)


def test_nonces_are_unique_also_after_a_fork() -> None:
    ids, more = SystemIds(), SystemIds()
    assert len({each.nonce() for _ in range(500) for each in (ids, more)}) == 1_000
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, ids.nonce().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 100).decode()
    assert theirs.partition("-")[0] != ids.nonce().partition("-")[0]
    os.close(read)
    os.close(write)


def test_the_clock_goes_forward() -> None:
    clock = SystemClock()
    assert clock.now() > 1.6e9
    assert clock.monotonic() <= clock.monotonic()


def test_threads_do_not_keep_the_process_alive() -> None:
    done = threading.Event()
    seen: list[tuple[str, bool]] = []

    def work() -> None:
        seen.append((threading.current_thread().name, threading.current_thread().daemon))
        done.set()

    SystemThreads().run(work, "beat")
    assert done.wait(PATIENCE_S)
    assert seen == [("beat", True)]
