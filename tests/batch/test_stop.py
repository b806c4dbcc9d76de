"""A runner that is asked to stop: what has not begun is free for others while a job still saves its work."""

from __future__ import annotations

import signal

from tests.batch.conftest import Batch
from tests.patience import PATIENCE_S, wait_until

_SAVE = "trap 'until test -e go; do sleep 0.02; done; echo saved >> witness; exit 0' TERM"


def test_jobs_that_have_not_begun_are_taken_by_others_while_one_saves_its_work(batch: Batch) -> None:
    steps = [
        {"id": "short_{k}", "run": "echo short_{k} >> witness; test -e second || sleep 600"},
        {
            "id": "saves",
            "needs": [],
            "run": f"test -e second || {{ {_SAVE}; echo saves >> witness; while :; do sleep 0.02; done; }}",
            "supports_termination": True,
            "resources": {"memory": "1GiB"},  # a lot of its own
        },
    ]
    batch.submit({"name": "stop", "parameters": {"k": "1:4"}, "steps": steps})
    first = batch.runner("--cpus", "2")
    wait_until(lambda: sorted(batch.seen()) == ["saves", "short_1"])
    (batch.folder / "second").touch()
    first.send_signal(signal.SIGTERM)
    second = batch.runner("--cpus", "2")
    wait_until(lambda: {f"short_{k}" for k in range(1, 5)} <= set(batch.seen()))
    assert "saved" not in batch.seen()
    (batch.folder / "go").touch()
    assert first.wait(PATIENCE_S) == 0
    assert second.wait(PATIENCE_S) == 0
    assert batch.seen().count("saved") == 1
    assert {job["attempt"] for job in batch.jobs().values()} == {1}


def test_jobs_of_the_same_lot_that_have_not_begun_are_given_back_at_once(batch: Batch) -> None:
    saves = f"test -e second || {{ {_SAVE}; echo saves >> witness; while :; do sleep 0.02; done; }}"
    steps = [{"id": "job_{k}", "run": f"echo job_{{k}} >> witness; {saves}", "supports_termination": True}]
    batch.submit({"name": "stop", "parameters": {"k": "1:80"}, "steps": steps})
    first = batch.runner("--cpus", "1")
    wait_until(lambda: batch.seen() == ["job_1", "saves"])
    (batch.folder / "second").touch()
    first.send_signal(signal.SIGTERM)
    second = batch.runner("--cpus", "2")
    # The first lot has 30 jobs: one runs, and 29 come back while it saves its work.
    wait_until(lambda: len({each for each in batch.seen() if each.startswith("job_")}) == 80)
    assert "saved" not in batch.seen()
    assert first.poll() is None
    (batch.folder / "go").touch()
    assert first.wait(PATIENCE_S) == 0
    assert second.wait(PATIENCE_S) == 0
    assert batch.seen().count("saved") == 1
    assert [batch.seen().count(f"job_{k}") for k in range(2, 81)] == [1] * 79
    assert {job["attempt"] for job in batch.jobs().values()} == {1}
    # The log has them as returned, so an owner that takes over in between has them free, too.
    bodies = [each["body"] for each in batch.json("events", "r1")["events"]]
    assert sum(len(each.get("returned", ())) for each in bodies if each["type"] == "jobs_ended") == 29


# Asked to stop, it takes until the test lets it go.
_SLOW = (
    "trap 'until test -e let-go; do sleep 0.02; done; echo ended >> witness; exit 1' TERM; echo begun >> witness; "
    "until test -e ok; do sleep 0.02; done; echo done >> witness"
)


def test_a_lot_stays_with_a_runner_that_stops_as_long_as_a_cancelled_job_of_it_runs(batch: Batch) -> None:
    steps = [
        {"id": "slow", "run": _SLOW, "supports_termination": True},
        {"id": "other", "needs": [], "run": "echo other >> witness; test -e second || sleep 600"},
        # Only the second runner has that much memory: it shows that this runner takes what it may.
        {"id": "probe", "needs": [], "run": "echo probe >> witness", "resources": {"memory": "64MiB"}},
    ]
    batch.submit({"name": "stop", "steps": steps})
    first = batch.runner("--cpus", "2", "--memory", "32MiB")
    wait_until(lambda: sorted(batch.seen()) == ["begun", "other"])
    (batch.folder / "second").touch()
    batch("cancel", "r1", "slow")
    lot = _lot_of(batch, "slow")
    wait_until(lambda: "leaf_cancelled" in batch("events", lot), "the stop of the job")
    batch("reset", "r1", "slow")
    first.send_signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in batch.said(), "the stop of the runner")
    second = batch.runner("--cpus", "2", "--memory", "128MiB")
    wait_until(lambda: "probe" in batch.seen(), "the second runner")
    assert "interrupted" not in batch("events", lot)
    (batch.folder / "ok").touch()
    (batch.folder / "let-go").touch()
    assert first.wait(PATIENCE_S) == 0
    assert second.wait(PATIENCE_S) == 0
    assert [each for each in batch.seen() if each in ("begun", "ended", "done")] == ["begun", "ended", "begun", "done"]
    # It was given back, and not found by the death of its runner.
    assert "interrupted" in batch("events", lot)


def _lot_of(batch: Batch, job: str) -> str:
    lots = [each["document"]["run_id"] for each in batch.json("ps", "--all", "--parent", "r1")["runs"]]
    return next(str(each) for each in lots if job in batch("events", each))
