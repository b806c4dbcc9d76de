"""Odd answers of Slurm: arrays, jobs of several parts, limits without an end, words that are cut off, empty lines."""

from __future__ import annotations

import pytest

from buoy.core.batch.slurm_text import (
    Cause,
    Phase,
    by_name,
    read_cluster_name,
    read_left,
    read_sacct,
    read_sinfo,
    read_squeue,
    with_accounts,
)

# From Slurm 22.05 with select/linear, no accounting: an array whose waiting tasks have one id, a job of two parts, a
# name with a space and a comma, a job with a deadline, a partition without a limit.
LAKE = """
5|arr|PENDING|JobArrayTaskLimit|0|0||lake|20:00|
5|arr|PENDING|JobArrayTaskLimit|0|0||lake|20:00|

9|dl|PENDING|JobHeldUser|0|0||lake|2:00|
8|od d,name|PENDING|JobHeldUser|0|0||lake|4:00:00|
10|arr|RUNNING|None|0|0|n1|lake|19:57|
11|arr|RUNNING|None|0|0|n2|lake|19:57|
6|het|RUNNING|None|0|0|n3|lake|4:57|
7|het|RUNNING|None|0|0|n4|lake|4:57|
3|wrap|RUNNING|None|0|0|n1|lake|365-00:00:00|
"""


def test_arrays_and_jobs_of_several_parts_are_rows_of_their_own() -> None:
    found = read_squeue(LAKE)
    assert found.odd == () and len(found.jobs) == 9
    assert {name: [job.job_id for job in jobs] for name, jobs in by_name(found.jobs).items()} == {
        "arr": ["5", "5", "10", "11"],
        "dl": ["9"],
        "od d,name": ["8"],
        "het": ["6", "7"],
        "wrap": ["3"],
    }


@pytest.mark.parametrize(
    ("text", "left_s"),
    [
        ("59:30", 3_570.0),
        ("0:00", 0.0),
        ("-0:05", 0.0),
        ("-1:02:03", 0.0),
        ("365-00:00:00", 31_536_000.0),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("N/A", None),
        ("", None),
        # A site that writes times in another way tells nothing.
        ("59 min", None),
    ],
)
def test_the_rest_of_a_time_limit_is_read_or_unknown(text: str, left_s: float | None) -> None:
    assert read_left(text) == left_s
    (job,) = read_squeue(f"7|x|RUNNING|None|0|0|n1|pond|{text}|\n").jobs
    assert job.left_s == left_s


# `sacct -n -P -D`: parts of a job, steps of each, cancelled by a user, an unknown end, a job that never had a node.
ACCOUNTS = """
6+0|het|COMPLETED|0:0|n3|lake|30|
6+0.batch|batch|COMPLETED|0:0|n3|lake|30|3016K
6+0.0|sh|COMPLETED|0:0|n3|lake|29|1.50M
6+1|het|CANCELLED by 1000|0:0|n4|lake|30|
6+1.extern|extern|COMPLETED|0:0|n4|lake|30|

7_1|arr|TIMEOUT|0:0|n1|lake|1200|
7_1.batch|batch|CANCELLED|0:15|n1|lake|1201|9000K
7_2|arr|OUT_OF_ME+|0:125|n1|lake|2|
8|never|CANCELLED by 1000|0:0|None assigned|lake|0|
9|preempted|PREEMPTED|0:15|n1|lake|3|
9.batch|batch|OUT_OF_MEMORY|0:125|n1|lake|3|7K
10|failed|FAILED|1:0|n1|lake||
10.batch|batch|FAILED|1:0|n1|lake||
10.0|sh|OUT_OF_MEMORY|0:125|n1|lake||??
"""


def test_accounts_of_parts_and_arrays_are_read_whole() -> None:
    found = read_sacct(ACCOUNTS)
    assert found.odd == ()
    assert [(job.job_id, job.state, job.cause, job.elapsed_s) for job in found.jobs] == [
        ("6+0", "COMPLETED", Cause.COMPLETED, 30.0),
        ("6+1", "CANCELLED", Cause.CANCELLED, 30.0),
        ("7_1", "TIMEOUT", Cause.TIMEOUT, 1_200.0),
        ("7_2", "OUT_OF_MEMORY", Cause.OOM, 2.0),
        ("8", "CANCELLED", Cause.CANCELLED, 0.0),
        # Its own state says why it ended; a step that ran out of memory says no more.
        ("9", "PREEMPTED", Cause.PREEMPTED, 3.0),
        ("10", "FAILED", Cause.OOM, None),
    ]
    assert [job.peak_memory_bytes for job in found.jobs][:3] == [3016 * 1024, None, 9000 * 1024]


def test_a_step_out_of_memory_tells_why_the_queue_calls_its_job_failed() -> None:
    queue = by_name(read_squeue("10|failed|FAILED|NonZeroExitCode|0|256|n1|lake|1:00|\n").jobs)
    (job,) = with_accounts(queue, read_sacct(ACCOUNTS).jobs)["failed"]
    assert (job.phase, job.state, job.cause) == (Phase.ENDED, "FAILED", Cause.OOM)
    other = by_name(read_squeue("9|preempted|PREEMPTED|None|0|15|n1|lake|1:00|\n").jobs)
    assert with_accounts(other, read_sacct(ACCOUNTS).jobs)["preempted"][0].cause is Cause.PREEMPTED


def test_partitions_without_limits_of_mixed_nodes_and_of_several_kinds_of_gres() -> None:
    text = (
        "debug|2|3000|(null)|30:00|1|up\nbatch*|2+|3000+|(null)|4:00:00|4|up\nurgent|2|3000|(null)|infinite|4|down\n"
        "\ngpu|64|256000|gpu:a100:4(S:0-1),gpu:v100:2,shard:8|UNLIMITED|8|up\nempty|0|0|(null)|n/a|0|inact\n"
    )
    found = {each.name: each for each in read_sinfo(text)}
    assert [(each.time_max_s, each.up, each.default) for each in found.values()] == [
        (1_800.0, True, False),
        (14_400.0, True, True),
        (None, False, False),
        (None, True, False),
        (None, False, False),
    ]
    assert (found["gpu"].gpus, found["batch"].cpus) == (6, 2)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Configuration data as of 2026-11-17T23:49:29\nClusterName             = lake\n", "lake"),
        ("Konfigurationsdaten vom 17.11.2026 23:49:29\n\nClusterName=lake\n", "lake"),
        ("AccountingStorageHost   = localhost\n", None),
        ("ClusterName             = \n", None),
    ],
)
def test_the_name_of_a_cluster_is_found_whatever_the_line_about_the_time_says(text: str, name: str | None) -> None:
    assert read_cluster_name(text) == name
