"""Job lines: jobs, their counts and their troubles, for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from buoy.cli.terminal.render import clock
from buoy.core.batch.jobs import RUNNER_LOST, Blocker, JobStatus, JobView
from buoy.core.durations import in_words
from buoy.core.explain.jobs import CAUSES
from buoy.core.log.wording import counted
from buoy.operations.batch.recover import JobRecovery, JobsRecovered

_HEADS = ("JOB", "STATUS", "TRY", "HOST", "EXIT", "TIME", "MEMORY", "CAUSE")
_CAUSE_CHARS = 80


def job_lines(jobs: Sequence[JobView]) -> list[str]:
    """A head and one line for each job."""
    if not jobs:
        return []
    rows = [_HEADS, *(_cells(job) for job in jobs)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def counts_line(counts: Mapping[JobStatus, int]) -> str:
    """How many jobs have each status, in one line."""
    total = sum(counts.values())
    return f"{counted(total, 'job')}: " + ", ".join(f"{count:,} {status}" for status, count in counts.items())


def job_cause(job: JobView) -> str:
    """Why the job is where it is, if something is wrong."""
    if job.blocked_by is not None:
        return f"{'cancelled with' if job.cause else 'blocked by'} {job.blocked_by}{_which(job.blocker)}"
    if job.cause is None:
        return ""
    first = (job.error or "").partition("\n")[0]
    text = f"{job.cause}: {first}" if first else job.cause
    return text if len(text) <= _CAUSE_CHARS else f"{text[: _CAUSE_CHARS - 1]}…"


def _which(blocker: Blocker | None) -> str:
    """What became of a job that keeps others waiting."""
    if blocker is None:
        return ""
    what = "was cancelled" if blocker.status is JobStatus.CANCELLED else CAUSES.get(blocker.cause or "", "failed")
    host = f" on {blocker.host}" if blocker.host else ""
    return f", which {what}{host}" + (f" at {clock(blocker.at)[:5]}" if blocker.at else "")


def size_text(count: int | None) -> str:
    """Bytes for a person."""
    if count is None:
        return ""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def recovered_lines(found: JobsRecovered) -> list[str]:
    """What is done, or would be, about each failed job."""
    if not found.jobs:
        return [f"run {found.run_id} has no failed jobs; nothing to do"]
    failed = [each for each in found.jobs if not each.free]
    again = sum(each.reset and not each.waiting for each in failed)
    would = "would be reset" if found.dry_run else "reset"
    lines = [f"run {found.run_id}: {again} of {counted(len(failed), 'failed job')} {would}"] if failed else []
    lines += [f"  {_recovery(each)}" for each in found.jobs]
    return [*lines, found.text] if found.text else lines


def _recovery(each: JobRecovery) -> str:
    if each.waiting:
        return f"{each.job}: its reset was sent before, and the next runner reads it"
    if each.cause == RUNNER_LOST:
        return f"{each.job}: its runner is gone; the next runner runs it again"
    if each.free:
        return f"{each.job}: lost ({each.cause}); it is free, and the next runner runs it again"
    if not each.reset:
        return f"{each.job}: stays failed ({each.cause}): {each.why}"
    changes = []
    if each.memory_bytes is not None:
        changes.append(
            f"memory {size_text(each.old_memory_bytes) or 'without limit'} to {size_text(each.memory_bytes)}"
        )
    if each.time_s is not None:
        old = "without limit" if each.old_time_s is None else in_words(each.old_time_s)
        changes.append(f"time {old} to {in_words(each.time_s)}")
    return f"{each.job}: {each.cause}; {', '.join(changes) or 'same limits'}"


def _cells(job: JobView) -> tuple[str, ...]:
    exit_text = job.signal or ("" if job.exit_code is None else str(job.exit_code))
    return (
        job.job,
        job.status.value,
        str(job.attempt or ""),
        job.host or "",
        exit_text,
        "" if job.duration_s is None else f"{job.duration_s:.1f} s",
        size_text(job.peak_memory_bytes),
        job_cause(job),
    )
