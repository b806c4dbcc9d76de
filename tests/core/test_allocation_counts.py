"""What allocations still have to give, which failed before a runner started, and whose place a runner has."""

from __future__ import annotations

import msgspec
import pytest

from buoy.core.batch.allocations import AllocationStatus, ClusterEntry, ClusterState
from buoy.core.batch.orphans import RunnerSeat, find_orphans
from buoy.core.batch.slurm_text import SlurmJob, meaning
from buoy.core.ids import RunnerId
from buoy.core.log import cluster_changes as c
from buoy.core.log.events import ResetBy
from buoy.core.spec.model import Resources
from buoy.operations.slurm.cluster_log import recoveries
from buoy.operations.slurm.places import allocation_place, predecessors
from buoy.ports.batch import AllocationPlace
from buoy.ports.records import Beat, RunnerInfo, RunnerRecord, StoreTime

HOUR = 3_600.0


def scheduler(walltime_s: float = HOUR, rounds: int = 5) -> c.SchedulerAdded:
    return c.SchedulerAdded(
        name="s", group="c1mg0n1t", deferred=False, walltime_s=walltime_s, places=4, rounds=rounds
    )  # fmt: skip


def active(made: c.SchedulerAdded) -> ClusterState:
    changes = (made, c.AllocationPlanned("a1", "s"), c.AllocationSubmitted("a1", "7"), c.AllocationActive("a1"))
    return ClusterState([ClusterEntry(1, 1.0, "me", changes)])


def row(text: str, left_s: float | None = None, restart: int = 0) -> SlurmJob:
    phase, cause = meaning(text)
    return SlurmJob(job_id="7", name="a1", state=text, phase=phase, cause=cause, restart=restart, left_s=left_s)


@pytest.mark.parametrize(
    ("left_s", "time_s", "jobs"),
    [
        (None, None, 20),
        (HOUR, None, 20),
        (HOUR / 2, None, 12),
        (200.0, None, 4),
        (90.0, None, 0),
        (HOUR, 600.0, 20),
        (HOUR / 2, 600.0, 8),
        (HOUR / 2, 1_000.0, 4),
        (HOUR / 2, 1_800.0, 0),
        (0.0, 600.0, 0),
    ],
)
def test_an_allocation_serves_as_many_jobs_as_fit_what_is_left(
    left_s: float | None, time_s: float | None, jobs: int
) -> None:
    cluster = active(scheduler())
    cluster.note_left({"a1": [row("RUNNING", left_s)]})
    assert cluster.serves(cluster.allocations["a1"], Resources(time_s=time_s)) == jobs


def test_an_allocation_that_has_just_started_serves_what_it_was_made_for() -> None:
    """Else a second plan right after the start of the first allocation would ask for another one."""
    cluster = active(scheduler(walltime_s=HOUR + 180, rounds=1))
    cluster.note_left({"a1": [row("RUNNING", HOUR + 120)]})
    assert cluster.serves(cluster.allocations["a1"], Resources(time_s=HOUR)) == 4
    short = active(scheduler(walltime_s=60.0, rounds=1))
    short.note_left({"a1": [row("RUNNING", 59.0)]})
    assert short.serves(short.allocations["a1"], Resources()) == 4


def test_the_time_of_one_that_waits_again_is_whole() -> None:
    cluster = active(scheduler())
    cluster.note_left({"a1": [row("PENDING", 60.0)]})
    assert cluster.left_s == {}


def ends(*looks: tuple[str, bool]) -> int:
    """The false starts after looks that each found one allocation with that cause, which ran or did not."""
    entries = [ClusterEntry(1, 1.0, "me", (scheduler(),))]
    for number, (cause, ran) in enumerate(looks, 2):
        name = f"a{number}"
        began = (c.AllocationActive(name),) if ran else ()
        changes = (c.AllocationPlanned(name, "s"), c.AllocationSubmitted(name, str(number)))
        entries.append(ClusterEntry(2 * number, 1.0, "me", changes))
        entries.append(ClusterEntry(2 * number + 1, 1.0, "me", (*began, c.AllocationEnded(name, cause))))
    return ClusterState(entries).false_starts


def test_allocations_that_fail_before_a_runner_starts_are_counted_until_one_starts() -> None:
    assert ends(("application", False), ("application", False)) == 2
    assert ends(("application", False), ("cancelled", False)) == 1, "nothing is learned from it"
    assert ends(("application", False), ("preempted", True)) == 0
    assert ends(("application", False), ("completed", False)) == 0, "it ran from start to end between two looks"
    assert ends(("application", True)) == 0


def test_an_allocation_that_started_and_ended_between_two_looks_is_no_false_start() -> None:
    waiting = ClusterState([ClusterEntry(1, 1.0, "me", (scheduler(), c.AllocationPlanned("a1", "s"),
                                                        c.AllocationSubmitted("a1", "7")))])  # fmt: skip
    found = find_orphans(waiting, {"a1": [row("FAILED")]}, [RunnerSeat("r1", "a1", "7")])
    assert [each.code for each in found.found] == ["J1"]
    assert waiting.after(found.changes).false_starts == 0


@pytest.mark.parametrize("seen", [True, False])
def test_a_job_that_a_controller_without_its_memory_starts_again_has_lost_its_runners(seen: bool) -> None:
    """Its restart count is the same. Runners are read before the queue: one that is there was of an earlier start."""
    cluster = active(scheduler())
    if not seen:
        cluster.allocations["a1"] = msgspec.structs.replace(
            cluster.allocations["a1"], status=AllocationStatus.PENDING
        )  # fmt: skip
    found = find_orphans(cluster, {"a1": [row("PENDING")]}, [RunnerSeat("r1", "a1", "7")])
    assert [(each.code, each.runners) for each in found.found] == [("J6", ("r1",))]
    after = cluster.after(found.changes)
    assert after.allocations["a1"].status is AllocationStatus.PENDING
    assert find_orphans(after, {"a1": [row("PENDING")]}, []).found == ()


def runner(runner_id: str, **place: object) -> RunnerRecord:
    given = {"cluster": "pond", "job_id": "7", "name": "a1", "start": "first", **place}
    info = RunnerInfo(
        RunnerId(runner_id), "n1", "b", "p", 1, "s", "n", allocation=msgspec.convert(given, AllocationPlace)
    )
    return RunnerRecord(info, StoreTime(1.0), StoreTime(1.0), Beat(1))


@pytest.mark.parametrize(
    ("mine", "gone"),
    [
        ({"launch": 2}, ["old"]),
        ({"launch": 2, "task": 1}, []),
        ({"restart": 1}, ["old", "other"]),
        ({"start": "second"}, ["old", "other"]),
        # A runner that was started again may be of a start that Slurm has forgotten by now.
        ({"start": "second", "launch": 2}, []),
        ({"start": ""}, []),
        ({"job_id": "8", "start": "second"}, []),
        ({"name": "a2", "start": "second"}, []),
    ],
)
def test_a_runner_proves_the_end_of_those_before_it_in_its_allocation(mine: dict[str, object], gone: list[str]) -> None:
    known = [runner("old"), runner("other", task=1, launch=3)]
    assert [each.info.id for each in predecessors(runner("me", **mine).info, known)] == gone


def test_the_token_of_a_start_comes_from_the_batch_script() -> None:
    variables = {"BUOY_ALLOCATION": "a1", "SLURM_JOB_ID": "7", "BUOY_ALLOCATION_START": "token"}
    found = allocation_place(variables)
    assert found is not None and found.start == "token"


@pytest.mark.parametrize(
    ("resets", "count"),
    [
        ([], 0),
        (["watch", "watch"], 2),
        (["watch", "person", "watch"], 1),
        (["watch", "person"], 0),
        (["watch", "loss", "watch", "loss"], 2),
        (["person", "loss"], 0),
    ],
)
def test_recoveries_of_a_watch_are_counted_since_a_person_last_reset_jobs(resets: list[ResetBy], count: int) -> None:
    assert recoveries(resets) == count
