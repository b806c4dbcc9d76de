"""Jobs that are reset while their first start still ends: none runs twice at the same time, on any two machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from buoy.engine.client import rewind_hold
from tests.batch.conftest import Batch, store_url
from tests.patience import PATIENCE_S, wait_until

__all__ = ["store_url"]

# Notes its start. Asked to stop, it takes until the test lets it go, and notes its end.
_SLOW = (
    "trap 'while [ ! -e let-go ]; do sleep 0.1; done; echo ended >> witness; exit 1' TERM; echo begun >> witness; "
    "while [ ! -e ok ]; do sleep 0.1; done; echo done >> witness"
)
_OTHER = "while [ ! -e ok ]; do sleep 0.1; done; echo other >> witness"


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("lot", ["alone", "with another"])
def test_a_cancelled_job_that_is_reset_begins_again_when_nothing_of_it_runs(
    batch: Batch, store_url: str, tmp_path: Path, lot: str
) -> None:
    batch.store = store_url
    steps: list[dict[str, Any]] = [
        {"id": "slow", "run": _SLOW, "supports_termination": True},
        {"id": "probe", "needs": [], "run": "echo probe >> witness"},
        {"id": "last", "needs": ["slow"], "run": "true"},
        {"id": "other", "needs": [], "run": _OTHER},
    ]
    batch.submit({"name": "reset", "steps": steps[: 3 if lot == "alone" else 4]})
    batch("cancel", "r1", "probe")
    worker = batch.process("worker", "--no-sweeper")
    wait_until(lambda: batch.jobs()["probe"]["status"] == "cancelled", "the first cancellation")
    # Two machines: they share no folder of logs, and so no lock.
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    cpus = ("--cpus", "1" if lot == "alone" else "2")
    first = batch.process("runner", "--run", "r1", *cpus, cwd=tmp_path / "one")
    wait_until(lambda: batch.seen() == ["begun"], f"the first start\n{batch.said()}")
    batch.process("runner", "--run", "r1", "--cpus", "2", cwd=tmp_path / "two")
    batch("cancel", "r1", "slow")
    wait_until(lambda: batch.jobs()["slow"]["status"] == "cancelled", "the cancellation")
    batch("reset", "r1", "slow", "probe")
    # The second machine has room, and what it may run it runs.
    wait_until(lambda: "probe" in batch.seen(), f"the second machine\n{batch.said()}")
    assert batch.seen() == ["begun", "probe"]
    (tmp_path / "let-go").touch()
    (tmp_path / "ok").touch()
    wait_until(lambda: batch.status() == "completed", f"the run\n{batch.said()}")
    seen = [each for each in batch.seen() if each not in ("other", "probe")]
    assert seen == ["begun", "ended", "begun", "done"]
    worker.terminate()
    assert (worker.wait(PATIENCE_S), first.wait(PATIENCE_S)) == (0, 0)


def test_a_lot_that_is_given_up_while_a_job_of_it_stops_ends_after_that_job(batch: Batch) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "slow", "run": _SLOW, "supports_termination": True},
        {"id": "other", "needs": [], "run": _OTHER},
    ]
    batch.submit({"name": "reset", "steps": steps})
    runner = batch.runner("--cpus", "2")
    wait_until(lambda: batch.seen() == ["begun"], f"the first start\n{batch.said()}")
    batch("cancel", "r1", "slow")
    wait_until(lambda: "leaf_cancelled" in batch("events", _lot(batch)["run_id"]), "the stop of the job")
    batch("cancel", "r1")
    wait_until(lambda: "cancel_requested" in batch("events", _lot(batch)["run_id"]), "the end of the lot")
    assert _lot(batch)["status"] == "running"
    (batch.folder / "let-go").touch()
    assert runner.wait(PATIENCE_S) == 3, batch.said()
    assert (_lot(batch)["status"], batch.seen()) == ("cancelled", ["begun", "ended"])


def _lot(batch: Batch) -> dict[str, Any]:
    (found,) = batch.json("ps", "--all", "--parent", "r1")["runs"]
    return dict(found["document"])


@pytest.mark.parametrize("with_needs", [False, True])
def test_a_diamond_whose_root_failed_runs_to_its_join_after_a_reset(batch: Batch, with_needs: bool) -> None:
    def step(name: str, *needs: str, run: str = "true") -> dict[str, Any]:
        given = {"cancel_with_needs": True} if with_needs and needs else {}
        return {"id": name, "needs": list(needs), "run": f"echo {name} >> witness; {run}", **given}

    steps = [step("root", run="test -e ok"), step("left", "root"), step("right", "root"), step("join", "left", "right")]
    batch.submit({"name": "diamond", "steps": steps})
    assert batch.runner().wait(PATIENCE_S) == 4
    jobs = batch.jobs()
    waits = "cancelled" if with_needs else "blocked"
    assert {(jobs[name]["status"], jobs[name]["blocked_by"]) for name in ("left", "right", "join")} == {(waits, "root")}
    (batch.folder / "ok").touch()
    batch("reset", "r1", "root")
    assert batch.runner().wait(PATIENCE_S) == 0
    assert {job["status"] for job in batch.jobs().values()} == {"completed"}
    assert sorted(batch.seen()) == ["join", "left", "right", "root", "root"]


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_cancelled_run_is_not_brought_back_before_its_jobs_have_ended(
    batch: Batch, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine would begin the job again beside the process that uses its grace."""
    monkeypatch.setattr(rewind_hold, "_WAIT_S", 0.2)
    batch.store = store_url
    batch.submit({"name": "reset", "steps": [{"id": "slow", "run": _SLOW, "supports_termination": True}]})
    for name in ("one", "two"):
        (batch.folder / name).mkdir()
    first = batch.process("runner", "--run", "r1", cwd=batch.folder / "one")
    wait_until(lambda: batch.seen() == ["begun"], f"the first start\n{batch.said()}")
    batch("cancel", "r1")
    wait_until(lambda: batch.status() == "cancelled", "the cancellation")
    said = batch("retry", "r1", "--from", "slow", "--yes", code=2)
    assert "a runner still has jobs of run r1 that would run again (slow)" in said
    assert batch.status() == "cancelled"
    (batch.folder / "ok").touch()
    (batch.folder / "let-go").touch()
    assert first.wait(PATIENCE_S) == 3, batch.said()
    batch("retry", "r1", "--from", "slow", "--yes")
    assert batch.process("runner", "--run", "r1", cwd=batch.folder / "two").wait(PATIENCE_S) == 0
    assert batch.seen() == ["begun", "ended", "begun", "done"]
