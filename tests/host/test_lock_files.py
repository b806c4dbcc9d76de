"""Lock files as others see them: with no permission to write, with none at all, and replaced under their feet."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buoy.core.ids import RunnerId
from buoy.errors import StoreUnusable
from buoy.host.lock_files import LockFiles

from .test_processes import record, runner_process

NOBODY = 65534
R1 = RunnerId("r1")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may pass through: pytest's own ones are private."""
    made = Path(tempfile.mkdtemp(prefix="buoy-locks-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def as_another_user(work: Callable[[], object]) -> object:
    """What a process of another user sees. Root may read everything, so it first becomes another user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.seteuid(NOBODY)
            told: object = work()
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(write, json.dumps(told).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        told = json.loads(answer.read())
    os.waitpid(child, 0)
    return told


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@needs_root
def test_whoever_may_only_read_a_lock_file_tells_the_dead_from_the_living(folder: Path) -> None:
    locks = LockFiles(folder)
    with runner_process(folder, "r1") as process:
        about = record("r1", process.pid)
        (folder / "r1.lock").chmod(0o444)
        assert as_another_user(lambda: locks.lock_state(R1)) == ["held", ""]
        assert as_another_user(lambda: locks.sight(about).doubt) is None
        process.kill()
        process.wait()
        proof = as_another_user(lambda: locks.sight(about).proof)
        assert isinstance(proof, dict) and proof["proof"] == "lock free"


@needs_root
@pytest.mark.parametrize("hidden", ["file", "folder"])
@pytest.mark.parametrize("dead", [False, True])
def test_a_lock_that_cannot_be_opened_is_unknown_and_never_held(folder: Path, hidden: str, dead: bool) -> None:
    locks = LockFiles(folder / "locks")
    with runner_process(folder / "locks", "r1") as process:
        about = record("r1", process.pid)
        (folder / "locks").chmod(0o700 if hidden == "folder" else 0o755)
        (folder / "locks" / "r1.lock").chmod(0o600)
        if dead:
            process.kill()
            process.wait()
        assert as_another_user(lambda: locks.sight(about).proof) is None, "no proof from here"
        state, why = as_another_user(lambda: locks.lock_state(R1))  # type: ignore[misc]
        assert state == "unknown" and "Permission denied" in why
        assert as_another_user(lambda: locks.sight(about).doubt) == why


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_something_else_of_that_name_is_unknown(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "r1.lock"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    assert LockFiles(tmp_path).lock_state(R1).state == "unknown"


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_lock_on_a_file_that_was_replaced_meanwhile_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exclusive: bool
) -> None:
    """Between opening and locking, another file replaces this one: the lock is on a file that no process will check."""
    path, real = tmp_path / "r1.lock", fcntl.lockf
    path.touch()

    def replaced(descriptor: int, kind: int) -> None:
        other = tmp_path / "other"
        other.touch()
        other.replace(path)
        real(descriptor, kind)

    monkeypatch.setattr(fcntl, "lockf", replaced)
    locks = LockFiles(tmp_path)
    if exclusive:
        with pytest.raises(StoreUnusable, match="replaced"):
            locks.announce(R1)
        assert locks.lock_state(R1).state != "held"
    else:
        assert locks.lock_state(R1).state == "unknown"
        assert locks.sight(record("r1")).proof is None


def test_a_lock_file_names_its_process_so_that_a_name_is_enough(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    with runner_process(tmp_path, "r1") as process:
        assert locks.proof_by_name(R1) is None
        process.kill()
        process.wait()
        proof = locks.proof_by_name(R1)
        assert proof is not None and (proof["proof"], proof["pid"]) == ("lock free", process.pid)
    (tmp_path / "r1.lock").write_bytes(b"\x00 garbage")
    assert locks.proof_by_name(R1) is None, "whose lock it was is not known"
    assert locks.proof_by_name(RunnerId("r2")) is None


def test_only_files_that_no_process_holds_are_left_behind_and_cleared(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path)
    locks.announce(RunnerId("mine"))
    (tmp_path / "beginning.lock").touch()  # as long as it is empty, its process may be about to lock it
    (tmp_path / "notes.txt").write_text("not ours")
    try:
        with runner_process(tmp_path, "alive") as alive, runner_process(tmp_path, "dead") as dead:
            dead.kill()
            dead.wait()
            assert asyncio.run(locks.left_behind()) == ["dead"]
            everybody = [RunnerId(name) for name in ("alive", "dead", "mine", "nobody")]
            assert asyncio.run(locks.clear(everybody)) == 1
            assert sorted(each.name for each in tmp_path.iterdir()) == [
                "alive.lock", "beginning.lock", "mine.lock", "notes.txt"
            ]  # fmt: skip
            assert locks.lock_state(RunnerId("alive")).state == "held"
            alive.kill()
    finally:
        locks.withdraw(RunnerId("mine"))


def test_a_folder_that_is_not_there_has_nothing_left_behind(tmp_path: Path) -> None:
    assert asyncio.run(LockFiles(tmp_path / "none").left_behind()) == []


@pytest.mark.parametrize(("number", "advice"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "permissions")])
def test_a_lock_file_that_cannot_be_made_has_the_advice_for_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    locks = LockFiles(tmp_path)
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(StoreUnusable, match=f"{os.strerror(number)}.*; .*{advice}"):
        locks.announce(R1)
    monkeypatch.undo()
    locks.withdraw(R1)
