"""What engines of this kind promise in their own words: programs that make those calls on runs that were left behind.

Functions below carry the names that they have there (`sweep_workflows`, `recover_workflow`, `reconcile_workflows`...),
and each body is the line of docs/coming-from.md that stands beside that name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import buoy
from buoy.core.ids import BranchId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.engine.read_log import read_log
from buoy.ports.records import Ended, Held, Released
from buoy.stores.postgres.address import address_of
from tests.core.logbook import claimed, completed, started
from tests.patience import PATIENCE_S, wait_until
from tests.postgres_server import fresh_url
from tests.recovery.harness import KINDS, RecoveryHarness, created, play
from tests.recovery.many_orphans import POLICIES, abandon, orphan

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()


def url_of(kind: str, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/runs"


on_both = pytest.mark.parametrize("kind", ["sqlite", "file"])


# ---- a sweeper over the tasks of a queue


class Queue:
    """A queue of the caller's own, with idempotency keys. It knows nothing of Buoy."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.keys: set[str] = set()
        self.submitted: list[str] = []

    async def get(self, task_id: str | None) -> dict[str, Any] | None:
        return self.tasks.get(task_id or "")

    async def submit(self, name: str, given: dict[str, str], task_id: str, idempotency_key: str) -> None:
        if idempotency_key not in self.keys:
            self.keys.add(idempotency_key)
            self.submitted.append(given["workflow_id"])
            self.tasks[task_id] = {"status": "queued"}


class WorkflowSweeper:
    """The library there: it reports, and the caller recovers."""

    def __init__(self, url: str, queue: Queue) -> None:
        self.url = url
        self.queue = queue

    async def sweep_workflows(self) -> buoy.Scan:
        return await buoy.scan(self.url, report=self.recover_workflow, task_checker=self.live)

    async def live(self, task: buoy.TaskView) -> bool:
        found = await self.queue.get(task.task_id)
        return found is not None and found["status"] not in ("completed", "failed", "cancelled")

    async def recover_workflow(self, found: buoy.Found) -> None:
        wf_id = found.run_id
        async with buoy.connect(self.url) as client:
            await buoy.recover(wf_id, client)
            task_id = (await client.record(wf_id)).envelope.orchestrator_task_id
        key = f"{wf_id}:orchestrate:{found.updated_at}"
        await self.queue.submit("workflow.orchestrate", {"workflow_id": wf_id}, str(task_id), idempotency_key=key)


@on_both
def test_a_sweeper_that_reports_lets_the_caller_submit_each_stalled_workflow_once(tmp_path: Path, kind: str) -> None:
    url, queue = url_of(kind, tmp_path), Queue()
    abandon(url, 8)

    async def twice() -> tuple[buoy.Scan, buoy.Scan]:
        sweeper = WorkflowSweeper(url, queue)
        return await sweeper.sweep_workflows(), await sweeper.sweep_workflows()

    first, second = asyncio.run(twice())
    assert sorted(queue.submitted) == [orphan(number)[0] for number in range(8)]
    assert {each.status for each in first.found} == {"running"} and first.troubles == ()
    assert [each.run_id for each in second.found] == [], "what was recovered is not submitted again"


def test_the_state_of_each_workflow_in_a_folder_names_its_status_and_its_task(tmp_path: Path) -> None:
    """`workflow/*/state.json`, as a program reads it that knows nothing of Buoy."""
    url = url_of("file", tmp_path)
    abandon(url, 4)
    asyncio.run(buoy.sweep(url))
    found = {}
    for path in (tmp_path / "runs").glob("workflow/*/state.json"):
        state = json.loads(path.read_text())
        found[path.parent.name] = (state["document"]["status"], state["envelope"]["orchestrator_task_id"])
    # A document may lag behind its log: that of a run that failed is there at once.
    assert found[orphan(2)[0]][0] == "failed"
    assert {task for _, task in found.values()} == {f"{run}:orchestrate:1" for run in found}


@pytest.mark.parametrize("words", [["--once"], ["--once", "--stale-after", "600"], ["--interval", "300"]])
def test_the_command_takes_the_options_that_it_has_there(tmp_path: Path, words: list[str]) -> None:
    url = url_of("sqlite", tmp_path)
    abandon(url, 4)
    command = [sys.executable, "-m", "buoy", "sweeper", *words, "--store", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        wait_until(lambda: asyncio.run(statuses(url))[orphan(2)[0]] == "failed")
        if "--once" not in words:
            process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    # 1: what was brought back waits, since no worker is alive.
    assert process.returncode == (1 if "--once" in words else 0)
    assert f"{orphan(1)[0]} restarted: H1" in out


async def statuses(url: str) -> dict[str, str]:
    async with buoy.connect(url) as client:
        return {each.document.run_id: each.document.status for each in (await client.runs()).runs}


# ---- a log of events with branches

LOST = e.JumpRequested(to=started("a#1").leaf, new_branch=BranchId(7), by="ann")
STATES: dict[str, tuple[tuple[e.Body, ...], Status]] = {
    "A1": ((created(), claimed("r1"), started("a#1"), completed("a#1")), Status.AWAITING_INPUT),
    "D2": ((created(), claimed("r1"), started("a#1"), completed("a#1"), LOST), Status.RUNNING),
}


async def recover_workflow(
    workflow_run_id: str, harness: RecoveryHarness
) -> tuple[bool, int | None, str | None, str | None]:
    """The four fields of `RecoveryResult` there."""
    result = await buoy.recover(workflow_run_id, harness.client)
    return result.needed, result.new_branch_id, result.reason, result.error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", STATES)
def test_a_workflow_whose_status_and_events_disagree_gets_a_branch_an_audit_and_a_line(
    tmp_path: Path, kind: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    bodies, status = STATES[code]
    caplog.set_level(logging.INFO, logger="buoy.recovery")

    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("one", *bodies, lie={"status": status})
        needed, branch, reason, error = await recover_workflow("one", harness)
        assert (needed, error) == (True, None) and str(reason).startswith(f"{code}: ")
        assert await recover_workflow("one", harness) == (False, None, None, None)
        log = await harness.log("one")
        assert [event.body for event in log[: len(bodies)]] == list(bodies), "no event was removed"
        (audit,) = [event.body for event in log if isinstance(event.body, e.WorkflowRecovered)]
        assert (audit.previous_branch, audit.new_branch) == (0, branch) and reason == audit.reason
        (line,) = [each for each in caplog.records if each.name == "buoy.recovery"]
        assert line.levelname == "INFO"
        told = f"Recovered run one (resume): {reason}. Created branch {branch} from event {audit.cutoff_event}"
        assert line.getMessage() == told

    play(tmp_path, test, kind)


@pytest.mark.parametrize("watched", [True, False])
def test_a_stream_without_execution_is_recovered_and_an_execution_without_a_stream_is_healthy(
    tmp_path: Path, watched: bool
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        able = await harness.runner("able", workflows={"order": ("",)})
        later = Released(due_at=harness.clock.now() + 600.0, now=harness.clock.now())
        await harness.plant("put-off", created(), claimed("r1"), started("a#1"), task=later)
        await harness.left_by(able, "executing", created(), claimed("able"), started("a#1"))
        done = await buoy.recover("put-off", harness.client, stream_open=watched)
        assert done.needed is watched and (not watched or str(done.reason).startswith("F1"))
        unwatched = await buoy.recover("executing", harness.client, stream_open=False)
        assert not unwatched.needed
        assert [each.code for each in unwatched.findings if each.trouble] == []

    play(tmp_path, test)


# ---- a heartbeat and a cron job

STUCK = """
SELECT
    workflow_run_id,
    status,
    state->>'last_heartbeat' as heartbeat,
    state->>'runner_pid' as pid
FROM workflow_runs
WHERE status = 'running'
ORDER BY workflow_run_id DESC;
"""
FLOWS = """
import asyncio, os, sys
import buoy


@buoy.step
async def stand(place: str) -> int:
    with open(place, "a") as out:
        out.write(f"{os.getpid()}\\n")
    while os.environ.get("STAND"):
        await asyncio.sleep(0.01)
    return 1


@buoy.workflow
async def wave(place: str) -> int:
    return await stand(place)


async def hold(url: str, place: str) -> None:
    async with buoy.open(url, workflows=[wave]) as app:
        for name in ("wave-1", "wave-2"):
            await app.start_as(name, wave, place)
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:]))
"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """A process that executes two workflows, whose steps do not end."""
    made: list[subprocess.Popen[bytes]] = []
    (tmp_path / "flows.py").write_text(FLOWS)
    place = tmp_path / "executed"

    def start(url: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "flows.py", url, str(place)]
        made.append(subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "STAND": "1"}))
        wait_until(lambda: place.exists() and len(place.read_text().split()) == 2)
        return made[-1]

    yield start
    for each in made:
        if each.poll() is None:
            each.kill()
            each.wait()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_query_for_stuck_workflows_shows_heartbeat_and_pid_of_a_real_process(
    tmp_path: Path, kind: str, runner: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    url = fresh_url() if kind == "postgres" else url_of("sqlite", tmp_path)
    process = runner(url)
    if kind == "postgres":
        address = address_of(url)
        with psycopg.connect(address.conninfo, options=f"-c search_path={address.schema}") as session:
            rows = session.execute(STUCK).fetchall()
    else:
        with sqlite3.connect(f"file:{tmp_path}/runs.db?mode=ro", uri=True) as connection:
            rows = connection.execute(STUCK).fetchall()
        connection.close()
    assert [(row[0], row[1], str(row[3])) for row in rows] == [
        (name, "running", str(process.pid)) for name in ("wave-2", "wave-1")
    ]
    assert all("T" in row[2] and row[2].endswith("Z") for row in rows)


def buoy_command(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "buoy", *words]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_after_a_reboot_resume_lists_the_dead_and_the_line_of_cron_executes_them(
    tmp_path: Path, runner: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    """`resume_workflows.py`, then `*/5 * * * * auto_resume.sh`: nothing else runs on the machine."""
    url = url_of("sqlite", tmp_path)
    killed = runner(url)
    killed.kill()
    killed.wait()
    listed = json.loads(buoy_command(tmp_path, "resume", "--store", url, "--json").stdout)
    assert sorted(each["run_id"] for each in listed["runs"]) == ["wave-1", "wave-2"]
    service = buoy_command(tmp_path, "service", "--worker", "flows.py", "--form", "crontab", "--store", url)
    line = next(each for each in service.stdout.splitlines() if each.startswith("*/5 * * * * "))
    bare = {"PATH": "/usr/bin:/bin"}
    shell = ["/bin/sh", "-c", line.replace("\\%", "%").split(" ", 5)[5]]
    done = subprocess.run(shell, env=bare, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert asyncio.run(statuses(url)) == {"wave-1": "completed", "wave-2": "completed"}


def test_a_signal_marks_the_workflows_as_interrupted_with_its_time_and_name_and_exits_in_order(
    tmp_path: Path,
) -> None:
    (tmp_path / "flows.py").write_text(FLOWS)
    url, place = url_of("sqlite", tmp_path), tmp_path / "executed"
    given = json.dumps({"place": str(place)})
    start = ("start", "flows.py:wave", "--id", "w", "--input", given, "--store", url)
    assert buoy_command(tmp_path, *start).returncode == 0

    command = [sys.executable, "-m", "buoy", "worker", "flows.py", "--grace", "0s", "--store", url]
    worker = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "STAND": "1"}, stdout=subprocess.DEVNULL)
    try:
        wait_until(place.exists)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    assert asyncio.run(statuses(url)) == {"w": "interrupted"}

    async def last() -> e.Event:
        async with buoy.connect(url) as client:
            return (await read_log(client.store, RunId("w")))[-1]

    event = asyncio.run(last())
    assert isinstance(event.body, e.Interrupted) and event.body.signal == "SIGTERM" and event.at > 0


# ---- a sweep after each start


@buoy.workflow(name="order", recovery="restart")
async def order() -> None: ...


@pytest.mark.parametrize(
    ("options", "actions"),
    [
        ({}, POLICIES),
        ({"registry": {"order": order}}, ("restart",) * 4),
        ({"resolve_policy": lambda _episode: "restart"}, ("restart",) * 4),
        ({"resolve_policy": lambda _episode: "fail", "registry": {"order": order}}, ("fail",) * 4),
        ({"stale_after": "2m"}, POLICIES),
        ({"stack": None}, POLICIES),
        ({"stack": "billing"}, POLICIES),
        ({"env": "another"}, ("none",) * 4),
    ],
    ids=["plain", "registry", "resolve_policy", "both", "stale_after", "all stacks", "stack", "env"],
)
def test_a_sweep_after_a_deploy_takes_the_options_that_it_has_there(
    tmp_path: Path, options: dict[str, Any], actions: tuple[str, ...]
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        for policy in POLICIES:
            bodies = (created(policy), claimed("r1"), started("a#1"))
            await harness.plant(policy, *bodies, task=Held(RunnerId("never-registered")))
        swept = await buoy.sweep(harness.client, **options)
        done = {"resume": swept.resumed, "restart": swept.restarted, "fail": swept.failed, "hold": swept.held}
        assert done == {policy: actions.count(policy) for policy in POLICIES}
        again = await buoy.sweep(harness.client, **options)
        assert (again.restarted, again.failed, again.skipped) == (0, 0, 0), "the first who claims wins"

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_that_all_sweep_after_their_boot_recover_each_episode_once(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        for number in range(12):
            policy = POLICIES[number % 4]
            await harness.left_by(dead, f"run-{number}", created(policy), claimed("r1"), started("a#1"))
        nodes = [harness.client_of(harness.store, f"node-{number}") for number in range(4)]
        swept = await asyncio.gather(*map(buoy.sweep, nodes))
        assert [sum(getattr(each, word) for each in swept) for word in ("restarted", "failed", "held")] == [3, 3, 3]
        assert sum(each.resumed for each in swept) == 3

    play(tmp_path, test, kind)


async def reconcile_workflows(harness: RecoveryHarness, **options: Any) -> tuple[int, int]:
    """`{:ok, %{replayed: n, skipped: n}}` there."""
    done = await buoy.reconcile(harness.client, **options)
    return done.replayed, done.skipped


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [e.WorkflowCompleted(), e.WorkflowCancelled(reason="no")])
def test_a_workflow_that_missed_the_end_of_its_step_is_told_again(tmp_path: Path, kind: str, ending: e.Body) -> None:
    async def test(harness: RecoveryHarness) -> None:
        child = RunId("parent.child-1")
        opened = e.ChildStarted(leaf=started("child#1").leaf, child=child, workflow="order", input=created().input)
        await harness.plant("parent", created(env="test"), claimed("r1"), opened)
        born = created(parent=e.Parent(RunId("parent"), opened.leaf), env="test")
        await harness.plant(child, born, claimed("r1"), ending, task=Ended())
        assert await reconcile_workflows(harness) == (0, 0), "each env reconciles its own"
        assert await reconcile_workflows(harness, env="test") == (1, 0)
        assert (await harness.store.inbox(RunId("parent")))[0].kind == "child_finished"

    play(tmp_path, test, kind)


# ---- the page


@pytest.mark.parametrize(
    "name",
    ["WorkflowSweeper", "sweep_workflows", "recover_workflow", "RecoveryResult", "find_last_stable_event",
     "resume_workflows.py", "auto_resume.sh", "actor_registry", "resolve_policy", "stale_after_ms", "source_stack",
     "source_env", "reconcile_workflows", "claim_for_recovery", "workflow_runs", "orchestrator_task_id", "torc recover",
     "torc watch", "sync-status", "slurm regenerate", "scheduler_groups", "WorkflowGraph.from_jobs", "is_recovery",
     "reset_actions_for_reinitialize"],
)  # fmt: skip
def test_the_page_of_other_names_has_each_of_them(name: str) -> None:
    assert name in PAGE
