"""Actions of a spec: each fires once, when its trigger holds, and a claim without an end is shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from tests.batch.slurm_plays import Played, played
from tests.patience import wait_until

__all__ = ["played"]


def spec(*actions: dict[str, Any], jobs: int = 2, **step: Any) -> dict[str, Any]:
    first = {"id": "job_{k}", "run": "echo {k} >> witness", **step}
    last = {"id": "last", "needs": ["job_{k}"], "run": "echo last >> witness"}
    return {"name": "sweep", "parameters": {"k": f"1:{jobs}"}, "steps": [first, last], "actions": list(actions)}


def commands(trigger: str, *texts: str, **more: Any) -> dict[str, Any]:
    return {"trigger": trigger, "kind": "run_commands", "commands": list(texts), **more}


def nodes(trigger: str, **more: Any) -> dict[str, Any]:
    return {"trigger": trigger, "kind": "schedule_nodes", **more}


def submit(played: Played, made: dict[str, Any], *words: str, code: int = 0) -> Any:
    played.submit(made)
    return played.json("submit", "spec.yaml", "--id", "r1", "--slurm", *words, code=code)


def test_each_trigger_fires_its_commands_once_in_order(played: Played) -> None:
    note = 'echo "$BUOY_TRIGGER $BUOY_RUN_ID $BUOY_RUN_STATUS $BUOY_ACTION" >> notes'
    submit(
        played,
        spec(
            commands("on_workflow_start", note),
            commands("on_jobs_ready", note, jobs=["last"]),
            commands("on_jobs_complete", note, jobs=["job_{k}"]),
            commands("on_workflow_complete", note, "false", "echo never >> notes"),
        ),
    )
    notes = played.folder / "notes"
    assert notes.read_text().splitlines() == ["on_workflow_start r1 pending spec-1"]
    played.watch()
    assert len(notes.read_text().splitlines()) == 1, "no other trigger holds"
    played.run_all()
    played.watch(code=0)
    played.watch(code=0)
    assert notes.read_text().splitlines() == [
        "on_workflow_start r1 pending spec-1",
        "on_jobs_ready r1 completed spec-2",
        "on_jobs_complete r1 completed spec-3",
        "on_workflow_complete r1 completed spec-4",
    ]
    found = played.actions()
    mine = [found[f"spec-{number}"] for number in range(1, 5)]
    assert all(each["executed"] and each["executed_at"] and each["executed_by"] for each in mine)
    assert not any(each["is_recovery"] for each in mine)
    assert (found["spec-4"]["end"]["failed"], found["spec-4"]["end"]["exit_code"]) == (2, 1)
    assert "command 2 failed with exit code 1" in played("slurm", "actions", "r1")


def test_a_dry_run_shows_what_actions_would_ask_for(played: Played) -> None:
    played.submit(
        spec(
            nodes("on_workflow_start", jobs=["job_{k}"], allocations=2, walltime="2h"),
            nodes("on_jobs_ready", jobs=["last"], walltime="3h"),
        )
    )
    shown = played("submit", "spec.yaml", "--slurm", "--dry-run").splitlines()
    assert [line.partition(": ")[2] for line in shown] == [
        "2 jobs; 2 allocations of 02:00:00",
        "1 job; 1 allocation of 03:00:00, when any of them is ready",
    ]
    found = played.json("submit", "spec.yaml", "--slurm", "--dry-run")
    assert found["pending"] == 3
    assert [(each["trigger"], each["allocations"]) for each in found["groups"]] == [
        ("on_workflow_start", 2),
        ("on_jobs_ready", 1),
    ]
    made = played.json("submit", "spec.yaml", "--id", "r1", "--slurm")
    assert len(made["slurm"]["submitted"]) == 2, "as many as were shown"


def test_an_action_that_no_partition_can_serve_is_refused_before_anything_is_stored(played: Played) -> None:
    played.submit(spec(nodes("on_jobs_ready", partition="nowhere")), "r0")
    assert "nowhere" in played("submit", "spec.yaml", "--id", "r1", "--slurm", code=2)
    assert "r1" not in played("ps", "--json")


def test_a_claim_whose_process_was_killed_is_shown_and_not_fired_again(played: Played) -> None:
    made = spec(commands("on_workflow_start", "echo begun >> notes; sleep 600; echo ended >> notes"))
    played.submit(made)
    words = ["submit", "spec.yaml", "--id", "r1", "--slurm", "--store", played.store]
    killed = subprocess.Popen([sys.executable, "-m", "buoy", *words], cwd=played.folder, env=dict(os.environ))
    notes = played.folder / "notes"
    # The shell makes the file before `echo` writes to it.
    wait_until(lambda: notes.exists() and notes.read_text(), "the command of the action")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert "its end is not recorded" in played("slurm", "actions", "r1")
    assert "spec-1 was begun before" in played.watch()
    assert notes.read_text() == "begun\n"
    assert played.actions()["spec-1"]["ended_at"] is None
    played("slurm", "reinitialize", "r1")
    assert not played.actions()["spec-1"]["executed"]


def test_nodes_of_an_action_replace_those_that_a_plan_would_ask_for(played: Played) -> None:
    shape = {"allocations": 2, "walltime": "30m", "partition": "long", "account": "bio"}
    made = spec(nodes("on_workflow_start", jobs=["job_{k}"], **shape), nodes("on_jobs_ready", jobs=["last"]))
    found = submit(played, made)
    assert found["slurm"]["groups"] == [] and len(found["slurm"]["submitted"]) == 2
    first = played.queue[0]["options"]
    assert {"--partition=long", "--account=bio", "--time=00:30:00"} <= set(first)
    actions = played.actions()
    assert (actions["spec-1"]["executed"], actions["spec-2"]["executed"]) == (True, False)
    played.watch()
    assert len(played.queue) == 2, "its job is not ready"


def test_an_action_for_jobs_that_are_ready_asks_when_no_allocation_is_left(played: Played) -> None:
    submit(played, spec(nodes("on_jobs_ready", jobs=["job_{k}"]), jobs=9))
    assert len(played.queue) == 1, "they are ready at once"
    assert played.actions()["spec-1"]["executed"]
    played.watch()
    assert len(played.queue) == 1


def test_regenerate_marks_actions_executed_and_reinitialize_resets_them(played: Played) -> None:
    submit(played, spec(nodes("on_jobs_ready", jobs=["last"]), commands("on_jobs_complete", "true", jobs=["last"])))
    played.json("slurm", "regenerate", "r1", "--walltime", "20m")
    actions = played.actions()
    assert actions["spec-1"]["executed"] and not actions["spec-2"]["executed"]
    recovery = [each for each in actions.values() if each["is_recovery"]]
    assert [(each["trigger"], each["kind"]) for each in recovery] == [("on_jobs_ready", "schedule_nodes")]
    played("slurm", "reinitialize", "r1")
    assert not any(each["executed"] or each["is_recovery"] for each in played.actions().values())


def test_commands_that_take_too_long_are_ended(played: Played) -> None:
    found = submit(played, spec(commands("on_workflow_start", "sleep 600", timeout="1s")), code=1)
    (end,) = found["slurm"]["actions"]
    assert (end["failed"], end["problem"]) == (1, "its commands took longer than 1 s") and "exit_code" not in end
