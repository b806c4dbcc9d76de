"""What a run has at its cluster: the fold of its changes, plans for pending jobs, orphans. Nothing is started."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from buoy.core.batch.actions import ready_actions
from buoy.core.batch.allocations import AllocationStatus, ClusterEntry, ClusterState, cluster_event
from buoy.core.batch.jobs import JobStatus, JobView
from buoy.core.batch.orphans import OrphansFound, RunnerSeat, find_orphans
from buoy.core.batch.regenerate import PendingJob, Regenerated, regenerate, surplus
from buoy.core.batch.resources import ONE_CPU, group_name
from buoy.core.batch.sizing import WALLTIME_MARGIN_S, Wishes
from buoy.core.batch.slurm_script import ScriptPlace, batch_script, node_script, sbatch_options
from buoy.core.batch.slurm_text import Partition, SlurmJob, meaning
from buoy.core.log import cluster_changes as c
from buoy.core.log import codec
from buoy.core.spec.model import Resources
from buoy.errors import BadInput

GIB = 2**30
NODE = Partition(name="main", cpus=4, memory_bytes=8 * GIB, nodes=10, time_max_s=7_200.0, default=True)
PLACE = ScriptPlace(python="/opt/py thon", directory="/data/it's", settings="/data/it's/s.sh", output_folder="/data/o")


def state(*entries: tuple[c.ClusterChange, ...]) -> ClusterState:
    return ClusterState(ClusterEntry(number, float(number), "me", each) for number, each in enumerate(entries, 1))


def job(name: str, status: JobStatus = JobStatus.READY, resources: Resources = ONE_CPU, *needs: str) -> PendingJob:
    return PendingJob(JobView(job=name, status=status), resources, needs)


def plan(jobs: list[PendingJob], cluster: ClusterState, wishes: Wishes | None = None, **given: Any) -> Regenerated:
    return regenerate(jobs, cluster, [NODE], wishes or Wishes(), "a{}".format, recovery=given.get("recovery", True))


def scheduler(**changed: Any) -> c.SchedulerAdded:
    given = {"name": "c1mg0n1t", "group": "c1mg0n1t", "deferred": False, "walltime_s": 3600.0, "places": 4, "rounds": 5}
    return c.SchedulerAdded(**{**given, **changed})


def allocation(name: str = "a1", *more: c.ClusterChange) -> tuple[c.ClusterChange, ...]:
    return (scheduler(), c.AllocationPlanned(name, "c1mg0n1t"), c.AllocationSubmitted(name, "7", "pond"), *more)


def row(text: str, name: str = "a1", job_id: str = "7", restart: int = 0) -> SlurmJob:
    phase, cause = meaning(text)
    return SlurmJob(job_id=job_id, name=name, state=text, phase=phase, cause=cause, restart=restart, cluster="pond")


# ---- the fold


def test_of_two_changes_with_one_number_only_the_first_counts() -> None:
    first = ClusterEntry(1, 1.0, "a", (c.AllocationPlanned("a1", "s"),))
    second = ClusterEntry(1, 1.0, "b", (c.AllocationPlanned("a2", "s"),))
    assert list(ClusterState([first, second]).allocations) == ["a1"]


def test_an_allocation_that_ended_stays_ended() -> None:
    found = state(allocation(), (c.AllocationEnded("a1", "timeout", "TIMEOUT"), c.AllocationActive("a1")))
    assert (found.allocations["a1"].status, found.allocations["a1"].cause) == (AllocationStatus.COMPLETE, "timeout")


def test_a_change_that_names_something_unknown_changes_nothing() -> None:
    found = state((c.AllocationEnded("x", "timeout"), c.ActionExecuted("y"), c.AllocationActive("z")))
    assert not found.allocations and not found.actions and found.number == 1


def test_a_reset_of_actions_deletes_those_of_recovery_and_lets_others_fire_again() -> None:
    added = (
        c.ActionAdded(action="n", trigger="on_workflow_start", scheduler="s"),
        c.ActionAdded(action="r", trigger="on_jobs_ready", scheduler="s", is_recovery=True),
    )
    before = state(added, (c.ActionExecuted("n"), c.ActionExecuted("r")))
    assert [(each.executed, each.executed_at, each.executed_by) for each in before.actions.values()] == [
        (True, 2.0, "me"),
        (True, 2.0, "me"),
    ]
    after = state(added, (c.ActionExecuted("n"), c.ActionExecuted("r")), (c.ActionsReset(),))
    assert [(each.action, each.executed, each.executed_at) for each in after.actions.values()] == [("n", False, None)]


def test_a_message_becomes_the_event_that_consumes_it() -> None:
    body = codec.encode(c.ChangeCluster(3, (c.ActionExecuted("n"),)), "a change")
    event = cluster_event(body, 12, "me")
    assert (event.number, event.message, event.by, event.changes) == (3, 12, "me", (c.ActionExecuted("n"),))


# ---- plans


def test_without_pending_jobs_there_is_nothing_to_do() -> None:
    found = plan([job("a", JobStatus.COMPLETED), job("b", JobStatus.RUNNING), job("c", JobStatus.FAILED)], state())
    assert (found.pending, found.changes) == (0, ())


def test_jobs_are_grouped_by_resources_and_by_whether_they_wait() -> None:
    gpu = Resources(cpus=2)
    jobs = [job("a"), job("b"), job("c", JobStatus.BLOCKED, ONE_CPU, "a"), job("d", JobStatus.READY, gpu)]
    found = plan(jobs, state())
    assert [(each.scheduler, each.jobs, each.allocations) for each in found.groups] == [
        ("c1mg0n1t", 2, 1),
        ("c1mg0n1t_deferred", 1, 0),
        ("c2mg0n1t", 1, 1),
    ]
    added = [each for each in found.changes if isinstance(each, c.ActionAdded)]
    assert [(each.scheduler, each.trigger, each.is_recovery) for each in added] == [
        ("c1mg0n1t_deferred", "on_jobs_ready", True)
    ]


def test_a_first_plan_has_actions_for_the_start_that_are_executed_with_it() -> None:
    found = plan([job("a")], state(), recovery=False)
    kinds = [type(each) for each in found.changes]
    assert kinds == [c.SchedulerAdded, c.ActionAdded, c.ActionExecuted, c.AllocationPlanned]
    folded = state(found.changes)
    (action,) = folded.actions.values()
    assert (action.trigger, action.executed, action.is_recovery) == ("on_workflow_start", True, False)


def test_a_second_plan_on_the_result_of_the_first_is_empty() -> None:
    jobs = [job(f"a{each}") for each in range(200)] + [job("z", JobStatus.BLOCKED, ONE_CPU, "a1")]
    first = plan(jobs, state())
    assert first.names and plan(jobs, state(first.changes)).changes == ()


def test_a_plan_marks_waiting_actions_executed_before_it_adds_its_own() -> None:
    waiting = (scheduler(name="old"), c.ActionAdded(action="old.1", trigger="on_jobs_ready", scheduler="old"))
    found = plan([job("a")], state(waiting))
    assert found.changes[0] == c.ActionExecuted("old.1")


def test_the_number_of_allocations_follows_from_the_time_that_they_ask_for() -> None:
    hour = Resources(time_s=600.0)
    jobs = [job(f"a{each}", JobStatus.READY, hour) for each in range(40)]
    # Four at a time, two rounds of ten minutes in half an hour less the margin.
    assert plan(jobs, state(), Wishes(walltime_s=1_800.0)).groups[0].allocations == 5
    assert plan(jobs, state(), Wishes(walltime_s=7_200.0)).groups[0].allocations == 1


def test_what_live_allocations_serve_is_subtracted_and_ended_ones_do_not_count() -> None:
    jobs = [job(f"a{each}") for each in range(30)]
    assert plan(jobs, state(allocation())).groups[0].served == 20
    ended = state(allocation("a1", c.AllocationEnded("a1", "timeout")))
    assert plan(jobs, ended).groups[0].served == 0


def test_an_allocation_for_small_jobs_does_not_serve_large_ones() -> None:
    large = Resources(memory_bytes=4 * GIB)
    assert plan([job("a", JobStatus.READY, large)], state(allocation())).groups[0].served == 0
    long = Resources(time_s=5_000.0)
    assert plan([job("a", JobStatus.READY, long)], state(allocation())).groups[0].served == 0


def test_one_allocation_with_several_nodes_serves_what_several_would() -> None:
    jobs = [job(f"a{each}", JobStatus.READY, Resources(time_s=1_500.0)) for each in range(16)]
    found = plan(jobs, state(), Wishes(single=True, walltime_s=1_800.0))
    (made,) = [each for each in found.changes if isinstance(each, c.SchedulerAdded)]
    assert (made.nodes, made.places, len(found.names)) == (4, 16, 1)


@pytest.mark.parametrize(
    ("resources", "wishes", "why"),
    [
        (Resources(cpus=5), Wishes(partition="main"), "no node of partition main is large enough"),
        (Resources(memory_bytes=9 * GIB), Wishes(), "no node of the cluster is large enough"),
        (Resources(nodes=11), Wishes(), "no node of the cluster is large enough"),
        (Resources(time_s=7_200.0), Wishes(), "is too short"),
        (Resources(time_s=600.0), Wishes(walltime_s=600.0), "is too short"),
        (Resources(), Wishes(partition="gpu"), "unknown partition 'gpu'; the cluster has main"),
    ],
)
def test_jobs_that_no_allocation_could_run_are_refused(resources: Resources, wishes: Wishes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        plan([job("a", JobStatus.READY, resources)], state(), wishes)


def test_a_walltime_leaves_room_for_the_margin_of_a_runner() -> None:
    found = plan([job("a", JobStatus.READY, Resources(time_s=5_400.0))], state())
    assert found.groups[0].walltime_s == 5_400.0 + WALLTIME_MARGIN_S


def deferred_chain() -> tuple[c.ClusterChange, ...]:
    waiting = scheduler(name="c1mg0n1t_deferred", deferred=True)
    added = c.ActionAdded(action="x.1", trigger="on_jobs_ready", scheduler="c1mg0n1t_deferred", is_recovery=True)
    return (waiting, added)


def test_an_action_fires_when_any_of_its_jobs_is_ready_even_if_others_need_that_one() -> None:
    chain = [job("a"), job("b", JobStatus.BLOCKED, ONE_CPU, "a"), job("c", JobStatus.CANCELLED)]
    found = ready_actions(chain, state(deferred_chain()), 50, "n{}".format)
    assert found == [c.ActionExecuted("x.1"), c.AllocationPlanned("n1", "c1mg0n1t_deferred")]
    assert ready_actions(chain, state(deferred_chain(), tuple(found)), 50, "n{}".format) == []


def test_an_action_waits_while_a_live_allocation_could_run_its_jobs() -> None:
    assert ready_actions([job("a")], state(deferred_chain(), allocation()), 50, "n{}".format) == []
    blocked = [job("a", JobStatus.RUNNING), job("b", JobStatus.BLOCKED, ONE_CPU, "a")]
    assert ready_actions(blocked, state(deferred_chain()), 50, "n{}".format) == []


def test_actions_that_are_due_together_ask_once_for_the_same_jobs() -> None:
    first = (scheduler(), c.ActionAdded(action="start", trigger="on_workflow_start", scheduler=scheduler().name))
    found = ready_actions([job("a")], state((*first, *deferred_chain())), 50, "n{}".format)
    assert [type(each) for each in found] == [c.ActionExecuted, c.AllocationPlanned], found
    large = Resources(cpus=4)
    other = (
        scheduler(name="large", group=group_name(large)),
        c.ActionAdded(action="l", trigger="on_jobs_ready", scheduler="large"),
    )
    found = ready_actions(
        [job("a"), job("b", JobStatus.READY, large)], state((*deferred_chain(), *other)), 50, "n{}".format
    )
    assert [each.name for each in found if isinstance(each, c.AllocationPlanned)] == ["n1", "n2"], found


# ---- orphans


def look(cluster: ClusterState, *rows: SlurmJob, seats: tuple[RunnerSeat, ...] = (), **given: Any) -> OrphansFound:
    jobs: dict[str, list[SlurmJob]] = {}
    for each in rows:
        jobs.setdefault(each.name, []).append(each)
    return find_orphans(cluster, jobs, seats, given.get("missed", ()))


ACTIVE = allocation("a1", c.AllocationActive("a1"))
SEAT = RunnerSeat("runner-1", "a1", "7")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("COMPLETED", "completed"),
        ("CANCELLED", "cancelled"),
        ("TIMEOUT", "timeout"),
        ("NODE_FAIL", "node_fail"),
        ("PREEMPTED", "preempted"),
        ("OUT_OF_MEMORY", "oom"),
        ("FAILED", "application"),
    ],
)
def test_an_active_allocation_whose_job_ended_is_complete_and_its_runners_are_dead(text: str, cause: str) -> None:
    found = look(state(ACTIVE), row(text), seats=(SEAT,))
    assert [(each.code, each.cause, each.runners) for each in found.found] == [("J1", cause, ("runner-1",))]
    assert found.changes == (c.AllocationEnded("a1", cause, text),)


@pytest.mark.parametrize("text", ["RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "RESIZING", "REVOKED", "NEW_WORD"])
def test_a_state_that_is_not_an_end_changes_nothing(text: str) -> None:
    found = look(state(ACTIVE), row(text), seats=(SEAT,))
    assert (found.found, found.changes) == ((), ())


def test_absence_counts_only_at_the_second_look() -> None:
    first = look(state(ACTIVE), seats=(SEAT,))
    assert (first.found, first.changes, first.missing) == ((), (), ("a1",))
    second = look(state(ACTIVE), seats=(SEAT,), missed=first.missing)
    assert [(each.code, each.cause) for each in second.found] == [("J1", "unknown")]
    pending = look(state(allocation()), missed=("a1",))
    assert [each.code for each in pending.found] == ["J2"]


def test_an_intent_without_an_id_is_found_by_its_name() -> None:
    planned = state((scheduler(), c.AllocationPlanned("a1", "c1mg0n1t")))
    found = look(planned, row("RUNNING"))
    assert [each.code for each in found.found] == ["J5"]
    assert found.changes == (c.AllocationSubmitted("a1", "7", "pond"), c.AllocationActive("a1", 0))
    assert look(planned, missed=("a1",)).changes == (), "it was perhaps never submitted: nothing ended"


def test_a_job_that_was_queued_again_under_its_id_has_lost_its_runners() -> None:
    waits = look(state(ACTIVE), row("PENDING", restart=1), seats=(SEAT,))
    assert [(each.code, each.runners) for each in waits.found] == [("J6", ("runner-1",))]
    runs = look(state(ACTIVE), row("RUNNING", restart=1), seats=(SEAT, RunnerSeat("runner-2", "a1", "7", 1)))
    assert [(each.code, each.runners) for each in runs.found] == [("J6", ("runner-1",))]
    assert runs.changes == (c.AllocationActive("a1", 1),)
    after = state(ACTIVE, runs.changes)
    assert look(after, row("RUNNING", restart=1), seats=(RunnerSeat("runner-2", "a1", "7", 1),)).found == ()


def test_an_id_that_another_job_has_now_is_not_taken_for_ours() -> None:
    other = row("RUNNING", name="somebody-else")
    assert look(state(ACTIVE), other).missing == ("a1",)


def test_a_runner_whose_allocation_was_recorded_as_ended_is_found_later() -> None:
    ended = state(ACTIVE, (c.AllocationEnded("a1", "timeout", "TIMEOUT"),))
    found = look(ended, seats=(SEAT,))
    assert [(each.code, each.runners, each.cause) for each in found.found] == [("J3", ("runner-1",), "timeout")]


def test_of_two_jobs_with_one_name_the_second_is_a_twin() -> None:
    found = look(state(ACTIVE), row("RUNNING"), row("PENDING", job_id="8"))
    assert (found.found, found.twins) == ((), ("8",))


def test_active_allocations_are_looked_at_before_pending_ones() -> None:
    pending = (c.AllocationPlanned("a0", "c1mg0n1t"), c.AllocationSubmitted("a0", "6", "pond"))
    found = look(state(pending, ACTIVE), row("CANCELLED", "a0", "6"), row("TIMEOUT"))
    assert [each.code for each in found.found] == ["J1", "J2"]


# ---- the script


def test_the_script_is_valid_shell_and_quotes_what_it_is_given() -> None:
    made = scheduler(memory_bytes=3 * 2**20 + 1, gpus=2, account="bio", partition="long", prologue="module load x\nA=1")
    script = batch_script("r1", "buoy.r1.1.x", made, PLACE)
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    subprocess.run(["sh", "-n"], input=node_script("r1", made, PLACE), text=True, check=True)
    assert shlex.quote(PLACE.settings) in script and "module load x" in script
    assert {"--mem=4M", "--gres=gpu:2", "--account=bio", "--partition=long", "--no-requeue", "--signal=TERM@90",
            "--time=01:00:00", "--chdir=/data/it's"} <= set(sbatch_options("buoy.r1.1.x", made, PLACE))  # fmt: skip


@pytest.mark.parametrize(("runner", "found"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 0), (5, 5)])
def test_a_paused_or_cancelled_run_is_no_failure_of_its_allocation(tmp_path: Path, runner: int, found: int) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {runner}\n")
    python.chmod(0o755)
    script = node_script("r1", scheduler(), msgspec.structs.replace(PLACE, python=str(python)))
    assert subprocess.run(["sh", "-c", script], check=False).returncode == found


def test_a_requeue_is_found_once_and_its_allocation_waits_again() -> None:
    seat = RunnerSeat("r1", "a1", "7", 0)
    active = state(allocation(), (c.AllocationActive("a1"),))
    found = find_orphans(active, {"a1": [row("PENDING", restart=1)]}, [seat])
    assert [(each.code, each.runners) for each in found.found] == [("J6", ("r1",))]
    assert found.changes == (c.AllocationRequeued("a1", 1),)
    later = active.after(found.changes)
    assert (later.allocations["a1"].status, later.allocations["a1"].restart) == (AllocationStatus.PENDING, 1)
    assert find_orphans(later, {"a1": [row("PENDING", restart=1)]}, []).found == ()
    again = find_orphans(later, {"a1": [row("RUNNING", restart=1)]}, [RunnerSeat("r2", "a1", "7", 1)])
    assert (again.found, again.changes) == ((), (c.AllocationActive("a1", 1),))


def test_an_allocation_that_waits_is_surplus_when_no_pending_job_could_run_in_it() -> None:
    cluster = state(allocation())
    assert [each.name for each in surplus([job("a", JobStatus.COMPLETED), job("b", JobStatus.RUNNING)], cluster)] == [
        "a1"
    ]
    assert [each.name for each in surplus([job("a", JobStatus.READY, Resources(cpus=4))], cluster)] == ["a1"]
    for status in (JobStatus.READY, JobStatus.BLOCKED, JobStatus.PENDING, JobStatus.TERMINATED):
        assert surplus([job("a", status)], cluster) == []
    assert surplus([], state(allocation("a1", c.AllocationActive("a1")))) == [], "it has started, and ends by itself"
    assert surplus([], state((scheduler(), c.AllocationPlanned("a1", "c1mg0n1t")))) == [], "it is not at Slurm"


def test_a_job_of_several_nodes_gets_an_allocation_of_its_own_and_one_runner() -> None:
    jobs = [job(f"a{each}", JobStatus.READY, Resources(cpus=2, nodes=3, time_s=1_500.0)) for each in range(5)]
    found = plan(jobs, state())
    (made,) = [each for each in found.changes if isinstance(each, c.SchedulerAdded)]
    assert (made.nodes, made.places, made.rounds, made.cpus, len(found.names)) == (3, 1, 2, 2, 3)
    assert "srun" not in batch_script("r1", "a1", made, PLACE)
    assert "--nodes=3" in sbatch_options("a1", made, PLACE)
    (one,) = [each for each in plan([job("a")], state()).changes if isinstance(each, c.SchedulerAdded)]
    assert "exec srun --ntasks-per-node=1 " in batch_script("r1", "a1", one, PLACE)


def test_a_hundred_thousand_pending_jobs_are_planned_in_ten_seconds_of_processor_time() -> None:
    jobs = [job(f"a{each}") for each in range(90_000)]
    jobs += [job(f"b{each}", JobStatus.BLOCKED, Resources(cpus=2), f"a{each}") for each in range(10_000)]
    began = time.process_time()
    found = plan(jobs, state(), Wishes(allocations_max=10_000))
    assert (found.pending, len(found.names)) == (100_000, 4_500)
    assert time.process_time() - began < 10.0


@pytest.mark.parametrize(("needed", "asked"), [(GIB, 4 * GIB + 256 * 2**20), (2 * GIB, 8 * GIB), (8 * GIB, 8 * GIB)])
def test_an_allocation_has_room_for_its_runner_unless_its_jobs_take_the_whole_node(needed: int, asked: int) -> None:
    made = plan([job(str(each), resources=Resources(memory_bytes=needed)) for each in range(4)], state())
    (scheduler,) = (each for each in made.changes if isinstance(each, c.SchedulerAdded))
    assert scheduler.memory_bytes == asked
