"""Texts of Slurm as they were recorded, odd ones included, and what is read from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoy.core.batch.slurm_text import (
    Cause,
    Partition,
    Phase,
    SlurmJob,
    by_name,
    meaning,
    read_memory,
    read_sacct,
    read_sinfo,
    read_span,
    read_squeue,
    span_text,
    state_word,
    with_accounts,
)

SQUEUE = """\
1|buoy.x.1|COMPLETED|None|0|0|n[1-2]|pond|59:30|
2|buoy.y.0|RUNNING|None|1|0|n1|pond|59:30|
3|buoy.y.1|PENDING|Resources|0|0||pond|59:30|
"""
# As `sacct -n -P -D` of Slurm 22.05 answered: a requeued job has a row for each start, with the steps of that start.
SACCT = """\
1|buoy.a|COMPLETED|0:0|n1|pond|4|
1.batch|batch|COMPLETED|0:0|n1|pond|4|102876K
2|buoy.b|REQUEUED|0:0|n1|pond|3|
2.batch|batch|CANCELLED|0:15|n1|pond|3|10824K
2.0|sleep|CANCELLED|0:15|n1|pond|3|1572K
3|buoy.c|CANCELLED by 0|0:0|n1|pond|3|
3.batch|batch|CANCELLED|0:15|n1|pond|3|3016K
3.extern|extern|COMPLETED|0:0|n1|pond|3|0
4|buoy.d|FAILED|1:0|n1|pond|0|
4.batch|batch|FAILED|1:0|n1|pond|0|
4.0|false|FAILED|1:0|n1|pond|0|
5|buoy.e|OUT_OF_MEMORY|0:125|n2|pond|1|
5.batch|batch|OUT_OF_MEMORY|0:125|n2|pond|1|1568K
2|buoy.b|RUNNING|0:0|n1|pond|5|
2.batch|batch|RUNNING|0:0|n1|pond|5|
2.0|sleep|RUNNING|0:0|n1|pond|5|
"""


def test_rows_of_squeue_are_jobs_with_their_phase_and_restarts() -> None:
    found = read_squeue(SQUEUE)
    assert found.odd == ()
    assert [(job.job_id, job.phase, job.cause, job.restart) for job in found.jobs] == [
        ("1", Phase.ENDED, Cause.COMPLETED, 0),
        ("2", Phase.ACTIVE, None, 1),
        ("3", Phase.WAITING, None, 0),
    ]
    assert found.jobs[2].reason == "Resources"


def test_an_empty_answer_has_no_rows_and_nothing_odd() -> None:
    assert read_squeue("").jobs == () and read_squeue("\n \n").odd == ()


@pytest.mark.parametrize(
    "line",
    [
        "Welcome to the cluster! Maintenance on Monday",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "5|a|b|RUNNING|None|0|0|n1|pond|59:30|",
        "5|name|RUNNING",
        "JOBID|NAME|STATE|REASON|RESTARTS|EXIT|NODELIST|CLUSTER|TIME_LEFT|",
        "||||||||||",
    ],
)
def test_a_line_that_is_no_row_is_odd_and_hides_no_other(line: str) -> None:
    found = read_squeue(f"{line}\n{SQUEUE}")
    assert found.odd == (line,) and len(found.jobs) == 3


def test_a_restart_count_that_is_not_told_is_not_zero() -> None:
    assert read_squeue("2|x|RUNNING|None|N/A|0|n1|N/A|59:30|\n").jobs == (
        SlurmJob(job_id="2", name="x", state="RUNNING", phase=Phase.ACTIVE, reason="None", nodes="n1", left_s=3_570.0),
    )


def test_rows_of_sacct_are_jobs_with_the_time_and_the_largest_memory_of_their_last_start() -> None:
    found = read_sacct(SACCT)
    assert found.odd == ()
    assert [(job.name, job.state, job.cause, job.elapsed_s, job.peak_memory_bytes) for job in found.jobs] == [
        ("buoy.a", "COMPLETED", Cause.COMPLETED, 4.0, 102876 * 1024),
        ("buoy.b", "RUNNING", None, 5.0, None),
        ("buoy.c", "CANCELLED", Cause.CANCELLED, 3.0, 3016 * 1024),
        ("buoy.d", "FAILED", Cause.APPLICATION, 0.0, None),
        ("buoy.e", "OUT_OF_MEMORY", Cause.OOM, 1.0, 1568 * 1024),
    ]


def test_each_row_more_of_an_id_is_a_start_more() -> None:
    assert [job.restart for job in read_sacct(SACCT).jobs] == [None, 1, None, None, None]


@pytest.mark.parametrize(
    ("text", "found"),
    [("102876K", 102876 * 1024), ("1.5G", 3 * 2**29), ("0", 0), ("12M", 12 * 2**20), ("", None), ("lots", None)],
)
def test_a_memory_of_accounting_is_a_number_of_bytes(text: str, found: int | None) -> None:
    assert read_memory(text) == found


@pytest.mark.parametrize("line", ["7|x|RUNNING|0:0|n1|pond", "sacct: error", "7.batch|batch|FAILED", "x|y|z|0|n|p|1|"])
def test_a_line_of_accounting_that_cannot_be_read_is_odd(line: str) -> None:
    assert read_sacct(line).odd == (line,)


def test_accounting_adds_ends_and_usage_and_never_a_life_that_the_queue_does_not_show() -> None:
    """A row `RUNNING` of a job that the controller lost in a crash stays for ever."""
    queue = by_name(
        read_squeue("3|buoy.c|CANCELLED|None|0|15|n1|pond|59:30|\n9|buoy.z|RUNNING|None|0|0|n1|pond|59:30|\n").jobs
    )
    found = with_accounts(queue, read_sacct(SACCT).jobs)
    assert sorted(found) == ["buoy.a", "buoy.c", "buoy.d", "buoy.e", "buoy.z"]
    assert (found["buoy.c"][0].elapsed_s, found["buoy.c"][0].restart) == (3.0, 0)


@pytest.mark.parametrize(
    ("text", "phase", "cause"),
    [
        ("PENDING", Phase.WAITING, None),
        ("CONFIGURING", Phase.WAITING, None),
        ("REQUEUED", Phase.WAITING, None),
        ("REQUEUE_HOLD", Phase.WAITING, None),
        ("SPECIAL_EXIT", Phase.WAITING, None),
        ("RUNNING", Phase.ACTIVE, None),
        ("SUSPENDED", Phase.ACTIVE, None),
        ("STOPPED", Phase.ACTIVE, None),
        ("COMPLETING", Phase.ACTIVE, None),
        ("STAGE_OUT", Phase.ACTIVE, None),
        ("RUNNING,COMPLETING", Phase.ACTIVE, None),
        ("COMPLETED", Phase.ENDED, Cause.COMPLETED),
        ("CANCELLED by 1000", Phase.ENDED, Cause.CANCELLED),
        ("CANCELLED+", Phase.ENDED, Cause.CANCELLED),
        ("OUT_OF_ME+", Phase.ENDED, Cause.OOM),
        ("FAILED", Phase.ENDED, Cause.APPLICATION),
        ("TIMEOUT", Phase.ENDED, Cause.TIMEOUT),
        ("DEADLINE", Phase.ENDED, Cause.TIMEOUT),
        ("NODE_FAIL", Phase.ENDED, Cause.NODE_FAIL),
        ("BOOT_FAIL", Phase.ENDED, Cause.NODE_FAIL),
        ("PREEMPTED", Phase.ENDED, Cause.PREEMPTED),
        ("pd", Phase.WAITING, None),
        ("CG", Phase.ACTIVE, None),
        ("CD", Phase.ENDED, Cause.COMPLETED),
        # In a federation another cluster has the job.
        ("REVOKED", Phase.UNKNOWN, None),
        ("RE+", Phase.UNKNOWN, None),
        ("", Phase.UNKNOWN, None),
        ("BRAND_NEW", Phase.UNKNOWN, None),
    ],
)
def test_every_state_has_one_meaning_and_an_unknown_word_means_unknown(
    text: str, phase: Phase, cause: Cause | None
) -> None:
    assert meaning(text) == (phase, cause)


@given(st.text(max_size=40))
def test_any_text_can_be_read(text: str) -> None:
    for read in (read_squeue, read_sacct):
        found = read(text)
        assert len(found.jobs) + len(found.odd) <= len(text.splitlines())
    read_sinfo(text)
    read_span(text)
    assert isinstance(state_word(text), str)


def test_partitions_have_the_size_of_their_nodes_and_their_limit() -> None:
    text = (
        "main*|4|4000|(null)|1:00:00|2|up\ngpu|128|512000+|gpu:a100:4(S:0-1)|2-00:00:00|8|up\nold|x|1|(null)|1|1|up\n"
    )
    assert read_sinfo(text) == [
        Partition(name="main", cpus=4, memory_bytes=4000 * 2**20, nodes=2, time_max_s=3600.0, default=True),
        Partition(name="gpu", cpus=128, memory_bytes=512_000 * 2**20, gpus=4, nodes=8, time_max_s=172_800.0),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1_800.0),
        ("1:30", 90.0),
        ("1:00:00", 3_600.0),
        ("2-0", 172_800.0),
        ("2-06", 194_400.0),
        ("1-00:30", 88_200.0),
        ("1-02:03:04", 93_784.0),
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
    ],
)
def test_a_span_is_read_in_each_of_its_forms(text: str, seconds: float | None) -> None:
    assert read_span(text) == seconds


@given(st.integers(1, 10_000_000))
def test_a_span_is_written_in_whole_minutes_and_never_shorter(seconds: int) -> None:
    found = read_span(span_text(float(seconds)))
    assert found is not None and 0 <= found - seconds < 60


def test_two_jobs_of_one_name_are_both_kept() -> None:
    rows = read_squeue("1|x|RUNNING|None|0|0|n1|pond|59:30|\n2|x|PENDING|None|0|0||pond|59:30|\n")
    assert [job.job_id for job in by_name(rows.jobs)["x"]] == ["1", "2"]


# From a real cluster (22.05): preempted, queued again, held after a failed launch, out of memory, without its nodes.
RECORDED = """\
3|pre-req|PENDING|BeginTime|1|0||pond|59:30|
22|stranger|PENDING|launch failed requeued held|1|0||pond|59:30|
13|dep|PENDING|DependencyNeverSatisfied|0|0||pond|59:30|
20|later|PENDING|ReqNodeNotAvail, UnavailableNodes:n[1-3]|0|0||pond|59:30|
23|down|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions|0|0|||1:00|
21|held|COMPLETING|None|0|15|n1|pond|59:30|
24|again|RUNNING|None|1|0|n2|pond|59:30|
2|pre-noreq|PREEMPTED|None|0|15|n1|pond|59:30|
8|oom|OUT_OF_MEMORY|OutOfMemory|0|253|n1|pond|59:30|
10|tlim|TIMEOUT|TimeLimit|0|15|n1|pond|59:30|
12|bad|FAILED|NonZeroExitCode|0|1792|n3|pond|59:30|
17|old|CANCELLED|None|0|9|n1|pond|59:30|
16|arr|COMPLETED|None|0|0|n1|pond|59:30|
"""


def test_rows_of_a_real_cluster_are_read_whole() -> None:
    found = read_squeue(RECORDED)
    assert found.odd == ()
    assert [(job.job_id, str(job.phase), job.cause and str(job.cause), job.restart) for job in found.jobs] == [
        ("3", "waiting", None, 1),
        ("22", "waiting", None, 1),
        ("13", "waiting", None, 0),
        ("20", "waiting", None, 0),
        ("23", "waiting", None, 0),
        ("21", "active", None, 0),
        ("24", "active", None, 1),
        ("2", "ended", "preempted", 0),
        ("8", "ended", "oom", 0),
        ("10", "ended", "timeout", 0),
        ("12", "ended", "application", 0),
        ("17", "ended", "cancelled", 0),
        ("16", "ended", "completed", 0),
    ]


def test_tasks_of_an_array_that_are_shown_as_one_row_are_odd() -> None:
    """`squeue -r` shows one row for each; a row for several has no id of a job."""
    found = read_squeue(
        "7_[2-5%2]|arr|PENDING|JobArrayTaskLimit|0|0||pond|59:30|\n7_1|arr|RUNNING|None|0|0|n1|pond|59:30|\n"
    )
    assert [job.job_id for job in found.jobs] == ["7_1"] and len(found.odd) == 1


ACCOUNTS = """\
12|crash|NODE_FAIL|0:0|n1|pond|5|
12.batch|batch|CANCELLED||n1|pond|5|
12.0|sh|CANCELLED||n1|pond|4|
13|oomstep|FAILED|1:0|n2|pond|2|
13.batch|batch|FAILED|1:0|n2|pond|2|10808K
13.0|sh|OUT_OF_MEMORY|0:125|n2|pond|1|
14|rq|REQUEUED|0:0|n2|pond|5|
14.batch|batch|CANCELLED|0:15|n2|pond|5|3256K
14|rq|RUNNING|0:0|n2|pond|6|
14.batch|batch|RUNNING|0:0|n2|pond|6|
22|waits|PENDING|0:0|None assigned|pond|0|
"""


def test_accounts_of_a_real_cluster_are_read_whole() -> None:
    """A lost node leaves steps without an exit code; a step out of memory leaves its job FAILED."""
    found = read_sacct(ACCOUNTS)
    assert found.odd == ()
    assert [(job.job_id, job.state, job.restart, job.elapsed_s) for job in found.jobs] == [
        ("12", "NODE_FAIL", None, 5.0),
        ("13", "FAILED", None, 2.0),
        ("14", "RUNNING", 1, 6.0),
        ("22", "PENDING", None, 0.0),
    ]
    assert [job.cause for job in found.jobs] == [Cause.NODE_FAIL, Cause.OOM, None, None]
    # What accounting calls waiting or running, and the queue does not know, is not there: it lags, or never ends.
    assert sorted(with_accounts({}, found.jobs)) == ["crash", "oomstep"]
