"""The JSON that commands about Slurm print is what docs/slurm.md says: each field, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from buoy.core.batch.allocations import Allocation, ClusterAction
from buoy.core.batch.job_causes import JobEvidence
from buoy.core.batch.orphans import ClusterOrphan
from buoy.core.batch.profiles import Profile
from buoy.core.batch.regenerate import PlannedGroup
from buoy.core.log.cluster_changes import ActionEnded, SchedulerAdded
from buoy.operations.batch.hook import HookEnd
from buoy.operations.batch.recover import JobRecovery, JobsRecovered
from buoy.operations.batch.watch import BatchProgress
from buoy.operations.slurm.allocate import Allocated
from buoy.operations.slurm.allocations import AllocatedJob, AllocationsCancelled, ClusterReport
from buoy.operations.slurm.recover import SlurmRecovered
from buoy.operations.slurm.submission import SubmittedAllocation
from buoy.operations.slurm.sync import Synced
from buoy.operations.slurm.tend import Tended
from tests.batch.slurm_plays import Played, played

__all__ = ["played"]

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
STRUCTS: dict[str, Any] = {
    "`slurm regenerate`": Allocated,
    "group": PlannedGroup,
    "submitted": SubmittedAllocation,
    "`sync-status`": Synced,
    "orphan": ClusterOrphan,
    "recover jobs": JobsRecovered,
    "recovered job": JobRecovery,
    "evidence": JobEvidence,
    "recover slurm": SlurmRecovered,
    "hook": HookEnd,
    "`slurm allocations`": ClusterReport,
    "allocation": Allocation,
    "scheduler": SchedulerAdded,
    "action": ClusterAction,
    "end of commands": ActionEnded,
    "slurm job": AllocatedJob,
    "`slurm cancel`": AllocationsCancelled,
    "`watch`": BatchProgress,
    "tended": Tended,
    "`hpc show`": Profile,
}


def documented() -> dict[str, tuple[set[str], bool]]:
    """The fields of each row of the table, and whether some may be absent."""
    part = PAGE.read_text().partition("\n## JSON\n")[2].partition("\n## ")[0]
    found = {}
    for line in part.splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if len(cells) == 2 and "`" in cells[1]:
            name, _, _ = cells[0].partition(", may lack")
            plain = re.sub(r"\([^)]*\)", "", cells[1])
            found[name] = set(re.findall(r"`(\w+)`", plain)), cells[0] != name
    return found


def check(name: str, printed: dict[str, Any]) -> dict[str, Any]:
    fields, may_lack = documented()[name]
    found = set(printed)
    assert found <= fields if may_lack else found == fields, f"{name}: {sorted(found ^ fields)}"
    return printed


def check_all(name: str, printed: Iterable[dict[str, Any]]) -> None:
    found = [check(name, each) for each in printed]
    assert found, f"no {name} was printed"


@pytest.mark.parametrize("name", STRUCTS)
def test_every_field_is_documented_and_every_documented_field_is_there(name: str) -> None:
    kind = STRUCTS[name]
    tag = {kind.__struct_config__.tag_field} - {None}
    assert documented()[name][0] == {each.encode_name for each in msgspec.structs.fields(kind)} | tag


def test_what_is_printed_is_what_is_documented(played: Played) -> None:
    steps = [
        {"id": "a", "run": "exit 9"},
        {"id": "b", "needs": ["a"], "run": "true", "resources": {"cpus": 2}},
    ]
    action = {"trigger": "on_workflow_start", "kind": "run_commands", "commands": ["exit 3"]}
    played.submit({"name": "chain", "steps": steps, "actions": [action]}, "r0")
    check("`submit --slurm --dry-run`", played.json("submit", "spec.yaml", "--slurm", "--dry-run"))
    made = check("`submit --slurm`", played.json("submit", "spec.yaml", "--id", "r1", "--slurm", code=1))
    planned = check("`slurm regenerate`", made["slurm"])
    check_all("group", planned["groups"])
    check_all("submitted", planned["submitted"])
    check_all("end of commands", planned["actions"])
    assert played.runner_in(0).wait(60) == 4
    played.set(0, state="CANCELLED")
    check_all("slurm job", check("`slurm jobs`", played.json("slurm", "jobs", "r1"))["jobs"])
    check_all("orphan", check("`sync-status`", played.json("sync-status", "r1", "--dry-run"))["orphans"])
    report = check("`slurm allocations`", played.json("slurm", "allocations", "r1"))
    check_all("allocation", report["allocations"])
    check_all("scheduler", report["schedulers"])
    actions = check("`slurm actions`", played.json("slurm", "actions", "r1"))["actions"]
    check_all("action", actions)
    check_all("end of commands", [each["end"] for each in actions if each["end"]])
    found = check("`recover`", played.json("recover", "r1", "--retry-unknown", "--recovery-hook", "true", "--submit"))
    check_all("recovered job", check("recover jobs", found["jobs"])["jobs"])
    check_all("evidence", [each["evidence"] for each in found["jobs"]["jobs"]])
    check("`slurm regenerate`", check("recover slurm", found["slurm"])["allocated"])
    check("hook", found["hook"])
    check("`slurm cancel`", played.json("slurm", "cancel", "r1"))
    lines = [json.loads(line) for line in played("watch", "r1", "--recover", "--once", "--json", code=4).splitlines()]
    tended, progress = lines
    check("tended", check("`watch --recover`, a look that did something", tended)["tended"])
    check("`watch`", progress)
    check("`slurm reinitialize`", played.json("slurm", "reinitialize", "r1"))


def test_what_is_printed_about_profiles_is_what_is_documented(played: Played) -> None:
    for each in check("`hpc profiles`", played.json("hpc", "profiles"))["profiles"]:
        check("`hpc show`", check("profile entry", each)["profile"])
    check("`hpc show`", played.json("hpc", "show", "live"))
    check("`hpc detect`", played.json("hpc", "detect", code=1))


def test_each_row_of_the_table_is_checked() -> None:
    """A row that no test names would be a promise without a check."""
    text = Path(__file__).read_text()
    assert [name for name in documented() if f'"{name}"' not in text] == []
