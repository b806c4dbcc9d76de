"""How a runner's end is proven: by what its record says, not by the name of its host or the kind of the store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from buoy.core.ids import RunnerId
from buoy.core.limits import LOOKS_APART_S, SUSPECT_AFTER_S
from buoy.host.lock_files import LockFiles
from buoy.host.processes import Processes
from buoy.ports.host import Liveness
from buoy.ports.records import Evidence, RunnerInfo
from buoy.recovery.failure_detector import SILENT, FailureDetector
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.clock import ManualClock
from tests.host.test_processes import record, runner_process

LOOK_S = 5.0
LONG_S = 2 * (SUSPECT_AFTER_S + LOOKS_APART_S)
# As a process of another container of this host has it.
ELSEWHERE = {"pid_namespace": "pid:[1]"}


def in_silence(tmp_path: Path, liveness: Liveness, info: RunnerInfo, span_s: float = LONG_S) -> Evidence | None:
    """What an observer knows of a runner that does not beat, after so long."""

    async def watch() -> Evidence | None:
        clock = ManualClock()
        store = await SqliteStore.open(tmp_path / "runs.db", clock=clock)
        try:
            await store.register(info)
            detector = FailureDetector(store, liveness, clock)
            for _ in range(int(span_s / LOOK_S)):
                clock.advance(LOOK_S)
                (found,) = await store.runners()
                proof = await detector.proof(found)
                if proof is not None:
                    return proof
            return None
        finally:
            await store.close()

    return asyncio.run(watch())


def info_of(**more: Any) -> RunnerInfo:
    return record("r1", **more).info


@pytest.mark.parametrize(
    "info",
    [
        info_of(proof="process", **ELSEWHERE),
        info_of(proof="beats"),
        info_of(proof="beats", **ELSEWHERE),
        info_of(proof="lock", **ELSEWHERE),
        info_of(**ELSEWHERE),
    ],
    ids=["process elsewhere", "beats here", "beats elsewhere", "lost lock elsewhere", "earlier release elsewhere"],
)
def test_a_runner_of_this_host_that_cannot_be_seen_is_judged_by_its_silence(tmp_path: Path, info: RunnerInfo) -> None:
    """Its PID means nothing here, and there is no lock file to look at: it must not be stuck for good."""
    locks = LockFiles(tmp_path / "locks")
    assert in_silence(tmp_path, locks, info, SUSPECT_AFTER_S) is None
    (tmp_path / "runs.db").unlink()
    proof = in_silence(tmp_path, locks, info)
    assert proof is not None and proof["proof"] == SILENT


def test_a_runner_in_an_allocation_is_never_judged_by_its_silence(tmp_path: Path) -> None:
    for number, liveness in enumerate((LockFiles(tmp_path / "locks"), Processes())):
        (tmp_path / f"{number}").mkdir()
        for pid in (1, 2**22 + 1):
            assert in_silence(tmp_path / f"{number}", liveness, info_of(pid=pid, proof="allocation"), 3_600.0) is None


def test_a_runner_that_is_proven_by_its_process_needs_no_lock_file(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path / "locks")
    with runner_process(tmp_path / "others", "r1") as process:
        info = info_of(pid=process.pid, proof="process")
        assert in_silence(tmp_path, locks, info) is None, "it is seen to live"
        process.kill()
        process.wait()
        proof = in_silence(tmp_path, locks, info)
    assert proof is not None and proof["proof"] == "the process is gone"


def test_a_lock_that_is_held_in_another_namespace_proves_life(tmp_path: Path) -> None:
    with runner_process(tmp_path / "locks", "r1") as process:
        info = info_of(pid=process.pid, proof="lock", **ELSEWHERE)
        assert in_silence(tmp_path, LockFiles(tmp_path / "locks"), info) is None
        process.kill()
        process.wait()
        proof = in_silence(tmp_path, LockFiles(tmp_path / "locks"), info)
    assert proof is not None and proof["proof"] == "lock free"


def test_records_of_earlier_releases_are_read_as_their_store_has_it(tmp_path: Path) -> None:
    old = msgspec.json.decode(msgspec.json.encode(info_of()), type=RunnerInfo)
    assert old.proof is None
    (tmp_path / "r1.lock").touch()
    about = record("r1")
    assert LockFiles(tmp_path).sight(about).proof is not None
    assert Processes().sight(about).seen and Processes().sight(about).proof is None
    assert (LockFiles(tmp_path).proof, Processes().proof) == ("lock", "process")
    assert RunnerId("r1") in asyncio.run(LockFiles(tmp_path).look([about]))
