"""Slurm's answers as values: rows of squeue, sacct and sinfo, and what each state of a job means.

Invariants: a word that is not in the table means `unknown`, and never that a job is gone. A line that cannot be read is
kept as odd, and a job that is not among the rows is then not absent. No sentence of Slurm is read, only fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

# The fields that are asked for, each closed by a bar. A bar in a name would be an odd line.
SQUEUE_FIELDS = "JobID:|,Name:|,State:|,Reason:|,RestartCnt:|,exit_code:|,NodeList:|,Cluster:|,TimeLeft:|"
SACCT_FIELDS = "JobIDRaw,JobName,State,ExitCode,NodeList,Cluster,ElapsedRaw,MaxRSS"
SINFO_FORMAT = "%P|%c|%m|%G|%l|%D|%a"

_JOB_ID = re.compile(r"\d+([_+]\d+)?\Z")
_STEP = re.compile(r"\d+(_\d+)?(\+\d+)?\.\w+\Z")
_GPUS = re.compile(r"gpu(?::[^:(,]+)?:(\d+)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)\Z")
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+)(?::(\d+))?\Z")


class Phase(StrEnum):
    """What a state of Slurm means for an allocation."""

    WAITING = "waiting"
    ACTIVE = "active"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """Why an allocation ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    OOM = "oom"
    APPLICATION = "application"
    # It is nowhere to be found, and no accounting shows why.
    UNKNOWN = "unknown"


# Both the base states and the flags that squeue shows in their place. COMPLETING: its processes may still be there.
_WAITING = ("PENDING", "CONFIGURING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
            "SPECIAL_EXIT")  # fmt: skip
_ACTIVE = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "COMPLETING", "STAGE_OUT", "UPDATE_DB",
           "EXPEDITING")  # fmt: skip
_ENDS = {
    "COMPLETED": Cause.COMPLETED,
    "CANCELLED": Cause.CANCELLED,
    "FAILED": Cause.APPLICATION,
    "TIMEOUT": Cause.TIMEOUT,
    "DEADLINE": Cause.TIMEOUT,
    "NODE_FAIL": Cause.NODE_FAIL,
    "BOOT_FAIL": Cause.NODE_FAIL,
    "LAUNCH_FAILED": Cause.NODE_FAIL,
    "RECONFIG_FAIL": Cause.NODE_FAIL,
    "PREEMPTED": Cause.PREEMPTED,
    "OUT_OF_MEMORY": Cause.OOM,
}
_PHASES = {
    **dict.fromkeys(_WAITING, Phase.WAITING),
    **dict.fromkeys(_ACTIVE, Phase.ACTIVE),
    **dict.fromkeys(_ENDS, Phase.ENDED),
}
_SHORT = {
    "PD": "PENDING", "CF": "CONFIGURING", "RQ": "REQUEUED", "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD",
    "RD": "RESV_DEL_HOLD", "SE": "SPECIAL_EXIT", "R": "RUNNING", "S": "SUSPENDED", "ST": "STOPPED", "SI": "SIGNALING",
    "RS": "RESIZING", "CG": "COMPLETING", "SO": "STAGE_OUT", "CD": "COMPLETED", "CA": "CANCELLED", "F": "FAILED",
    "TO": "TIMEOUT", "DL": "DEADLINE", "NF": "NODE_FAIL", "BF": "BOOT_FAIL", "PR": "PREEMPTED", "OOM": "OUT_OF_MEMORY",
    "RV": "REVOKED",
}  # fmt: skip


class SlurmJob(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One job as Slurm shows it. `restart`: how often it was queued again under the same id; None: unknown.

    `elapsed_s` and `peak_memory_bytes` (of its largest step) are there where accounting tells them.
    `left_s`: the rest of its time limit; None: no limit, or unknown.
    """

    job_id: str
    name: str
    state: str
    phase: Phase
    cause: Cause | None = None
    restart: int | None = None
    reason: str = ""
    nodes: str = ""
    cluster: str = ""
    elapsed_s: float | None = None
    peak_memory_bytes: int | None = None
    left_s: float | None = None


class SlurmRows(msgspec.Struct, frozen=True):
    """What an answer holds. `odd`: lines that are no rows; a job that is not there may be in one of them."""

    jobs: tuple[SlurmJob, ...]
    odd: tuple[str, ...] = ()


class Partition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A kind of node in a partition. `time_max_s` None: no limit. `by_name`: used only if a person names it."""

    name: str
    cpus: int
    memory_bytes: int
    gpus: int = 0
    nodes: int = 1
    time_max_s: float | None = None
    default: bool = False
    up: bool = True
    by_name: bool = False


def state_word(text: str) -> str:
    """The one word of a state: `CANCELLED by 0`, `CANCELLED+`, `CA` and `RUNNING,COMPLETING` are found in the wild."""
    first = text.strip().split()[0] if text.strip() else ""
    words = [each for each in re.split(r"[,|]", first.upper()) if each]
    flags = [each for each in words[1:] if each in _PHASES]
    word = flags[-1] if flags else words[0] if words else ""
    word = _SHORT.get(word, word)
    if word.endswith("+"):
        # A column of ten characters: the only state that begins so is meant.
        meant = [each for each in _PHASES if each.startswith(word[:-1])]
        word = meant[0] if len(meant) == 1 else word
    return word


def meaning(text: str) -> tuple[Phase, Cause | None]:
    """What a state means, and why the job ended if it did."""
    word = state_word(text)
    return _PHASES.get(word, Phase.UNKNOWN), _ENDS.get(word)


def read_squeue(text: str) -> SlurmRows:
    """The rows of `squeue -h -O SQUEUE_FIELDS`."""
    jobs, odd = [], []
    for line in _lines(text):
        fields = [each.strip() for each in line.split("|")]
        if len(fields) != 10 or fields[9] or not _JOB_ID.match(fields[0]):
            odd.append(line)
            continue
        job_id, name, state, reason, restarts, _, nodes, cluster, left, _ = fields
        phase, cause = meaning(state)
        jobs.append(
            SlurmJob(
                job_id=job_id, name=name, state=state_word(state), phase=phase, cause=cause, reason=reason, nodes=nodes,
                restart=int(restarts) if restarts.isdigit() else None, cluster="" if cluster == "N/A" else cluster,
                left_s=read_left(left),
            )
        )  # fmt: skip
    return SlurmRows(tuple(jobs), tuple(odd))


def read_sacct(text: str) -> SlurmRows:
    """The rows of `sacct -n -P -D -o SACCT_FIELDS`: the last start of each job, with the largest memory of its steps.

    Earlier rows of the same id are earlier starts of a job that was queued again. A job that failed after one of its
    steps ran out of memory ran out of memory: Slurm says FAILED of the job, and OUT_OF_MEMORY of the step.
    """
    jobs: dict[str, SlurmJob] = {}
    odd = []
    for line in _lines(text):
        fields = [each.strip() for each in line.split("|")]
        step, known = _STEP.match(fields[0]), jobs.get(fields[0].partition(".")[0])
        if len(fields) != 8 or not (step or _JOB_ID.match(fields[0])):
            odd.append(line)
        elif not step:
            jobs[fields[0]] = _accounted(fields, None if known is None else (known.restart or 0) + 1)
        elif known is not None:
            peak = max(known.peak_memory_bytes or 0, read_memory(fields[7]) or 0) or None
            cause = _sharper(known.cause, meaning(fields[2])[1])
            jobs[known.job_id] = msgspec.structs.replace(known, peak_memory_bytes=peak, cause=cause)
    return SlurmRows(tuple(jobs.values()), tuple(odd))


def _sharper(cause: Cause | None, other: Cause | None) -> Cause | None:
    """A failure without a reason, and another word about the same job."""
    return Cause.OOM if (cause, other) == (Cause.APPLICATION, Cause.OOM) else cause


def _accounted(fields: list[str], restart: int | None) -> SlurmJob:
    job_id, name, state, _, nodes, cluster, elapsed, peak = fields
    phase, cause = meaning(state)
    return SlurmJob(
        job_id=job_id, name=name, state=state_word(state), phase=phase, cause=cause, nodes=nodes, cluster=cluster,
        restart=restart, elapsed_s=float(elapsed) if elapsed.isdigit() else None, peak_memory_bytes=read_memory(peak),
    )  # fmt: skip


def read_memory(text: str) -> int | None:
    """The bytes of `102876K`, `1.5G` or a plain number. None: unknown."""
    found = _MEMORY.match(text.strip().upper())
    if found is None:
        return None
    return int(float(found[1]) * 1024 ** " KMGTP".index(found[2] or " "))


def read_sinfo(text: str) -> list[Partition]:
    """The rows of `sinfo -h -o SINFO_FORMAT`, as far as they can be read."""
    found = []
    for line in _lines(text):
        fields = [each.strip() for each in line.split("|")]
        if len(fields) != 7:
            continue
        name, cpus, memory, gres, limit, nodes, available = fields
        numbers = [each.rstrip("+") for each in (cpus, memory, nodes)]
        if not all(each.isdigit() for each in numbers):
            continue
        found.append(
            Partition(
                name=name.rstrip("*"), default=name.endswith("*"), cpus=int(numbers[0]),
                memory_bytes=int(numbers[1]) * 2**20, nodes=int(numbers[2]), gpus=_gpus(gres),
                time_max_s=read_span(limit), up=available == "up",
            )
        )  # fmt: skip
    return found


def read_cluster_name(text: str) -> str | None:
    """The cluster of `scontrol show config`."""
    for line in _lines(text):
        key, _, value = line.partition("=")
        if key.strip() == "ClusterName" and value.strip():
            return value.strip()
    return None


def read_span(text: str) -> float | None:
    """The seconds of `[days-]hours:minutes:seconds`, `minutes:seconds` or minutes. None: no limit, or unreadable."""
    found = _SPAN.match(text.strip())
    if found is None:
        return None
    days, first, middle, last = (None if each is None else int(each) for each in found.groups())
    assert middle is not None
    if days is not None:
        # After days come hours, then minutes, then seconds.
        parts = [first, middle, last] if first is not None else [middle, 0, 0]
        hours, minutes, seconds = ((each or 0) for each in parts)
        return float(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)
    if last is not None:
        return float((first or 0) * 3_600 + middle * 60 + last)
    return float(middle * 60) if first is None else float(first * 60 + middle)


def read_left(text: str) -> float | None:
    """The seconds that a job has left. A job that is over its limit has none; None: no limit, or unknown."""
    return 0.0 if text.strip().startswith("-") else read_span(text)


def span_text(seconds: float) -> str:
    """A span as sbatch takes it, rounded up to whole minutes: Slurm counts no less."""
    minutes = max(1, -(-int(seconds) // 60) if seconds == int(seconds) else int(seconds // 60) + 1)
    days, rest = divmod(minutes, 1_440)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00" if days else f"{rest // 60:02d}:{rest % 60:02d}:00"


def by_name(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    """The jobs of each name. One that was submitted twice has two."""
    found: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        found.setdefault(job.name, []).append(job)
    return found


def with_accounts(queued: Mapping[str, list[SlurmJob]], accounts: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    """What the queue shows, and what accounting adds: ends that the queue has forgotten, time and memory of all ends.

    Accounting lags. A job that it calls running and that the queue does not show is unknown: the controller may have
    lost it in a crash, and then that row never changes.
    """
    found = {name: list(jobs) for name, jobs in queued.items()}
    for row in accounts:
        if row.phase is not Phase.ENDED:
            continue
        mine = found.setdefault(row.name, [])
        place = next((number for number, job in enumerate(mine) if job.job_id == row.job_id), None)
        if place is None:
            mine.append(row)
        else:
            used = {"elapsed_s": row.elapsed_s, "peak_memory_bytes": row.peak_memory_bytes}
            mine[place] = msgspec.structs.replace(mine[place], cause=_sharper(mine[place].cause, row.cause), **used)
    return {name: jobs for name, jobs in found.items() if jobs}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _gpus(gres: str) -> int:
    return sum(int(each) for each in _GPUS.findall(gres))
