"""The adapter of Slurm: its commands, each with a time limit, called without a shell.

Invariants: an exit code other than 0 is never read as "there is no such job". Answers are asked for as fields, and
nothing is decided on a sentence of Slurm.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence

from buoy.core.batch.slurm_text import (
    SACCT_FIELDS,
    SINFO_FORMAT,
    SQUEUE_FIELDS,
    Partition,
    Phase,
    SlurmJob,
    by_name,
    read_cluster_name,
    read_sacct,
    read_sinfo,
    read_squeue,
    with_accounts,
)
from buoy.errors import BadInput, Unavailable
from buoy.ports.batch import SchedulerAnswer

COMMAND_S = 30.0
# A single argument of a command has at most 128 KiB.
_NAMES_BYTES_MAX = 100_000
_DAY_S = 86_400.0
_SHOWN_CHARS = 300


class Slurm:
    """The Slurm that this process's environment names (`SLURM_CONF`, or the system's own)."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        if shutil.which("squeue", path=self._environment.get("PATH")) is None:
            raise BadInput("no Slurm commands found: squeue is not in PATH; call this where sbatch works")

    async def submit(self, options: Sequence[str], script: str) -> tuple[str, str]:
        try:
            code, out, err = await self._run(["sbatch", "--parsable", *options], script)
        except Unavailable as error:
            raise Unavailable(f"sbatch did not answer: {error}; look for the job by its name") from error
        # Sites print their own lines before it: the last one is the id.
        job_id, _, cluster = (out.split() or [""])[-1].partition(";")
        if code != 0 or not job_id.isdigit():
            raise Unavailable(
                f"sbatch failed with exit code {code}: {_short(err or out)}; look for the job by its name"
            )
        return job_id, cluster

    async def states(self, names: Collection[str], age_s: float, *, accounts: bool = True) -> SchedulerAnswer:
        found: list[SlurmJob] = []
        for part in _parts(sorted(names)):
            words = ["squeue", "-h", "-r", "-t", "all", f"--name={part}", "-O", SQUEUE_FIELDS]
            rows = read_squeue(await self._answer(words))
            if rows.odd:
                raise Unavailable(f"squeue answered with a line that is no job: {_short(rows.odd[0])}; ask again")
            found += rows.jobs
        queued = by_name(found)
        wanted = [name for name in names if all(job.phase is Phase.ENDED for job in queued.get(name, ()))]
        accounted = await self._accounts(wanted, age_s) if accounts else None
        return SchedulerAnswer(with_accounts(queued, accounted or ()), accounted is not None and bool(wanted))

    async def _accounts(self, names: Collection[str], age_s: float) -> list[SlurmJob] | None:
        """What accounting has about these names; None: there is none, or it cannot be read whole now."""
        found: list[SlurmJob] = []
        # Without a start Slurm begins at midnight. A day more: its clock is not ours.
        since = f"now-{2 + int(age_s // _DAY_S)}days"
        for part in _parts(sorted(names)):
            words = ["sacct", "-n", "-P", "-D", "-S", since, f"--name={part}", "-o", SACCT_FIELDS]
            code, out, _ = await self._run(words)
            rows = read_sacct(out)
            # Where there is no accounting sacct fails. Its silence then proves nothing.
            if code != 0 or rows.odd:
                return None
            found += rows.jobs
        return found

    async def cancel(self, job_ids: Iterable[str]) -> None:
        wanted = list(job_ids)
        if wanted:
            await self._answer(["scancel", *wanted])

    async def partitions(self) -> list[Partition]:
        return read_sinfo(await self._answer(["sinfo", "-h", "-o", SINFO_FORMAT]))

    async def cluster_name(self) -> str | None:
        """Slurm's own name for the cluster. Raises `Unavailable`."""
        return read_cluster_name(await self._answer(["scontrol", "show", "config"]))

    async def _answer(self, words: Sequence[str]) -> str:
        code, out, err = await self._run(words)
        if code != 0:
            raise Unavailable(f"{words[0]} failed with exit code {code}: {_short(err or out)}; ask again")
        return out

    async def _run(self, words: Sequence[str], given: str = "") -> tuple[int, str, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise Unavailable(f"{words[0]} cannot be started: {error}; is Slurm installed here?") from error
        try:
            async with asyncio.timeout(COMMAND_S):
                out, err = await process.communicate(given.encode())
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise Unavailable(f"{words[0]} gave no answer within {COMMAND_S:g} s; ask again") from error
        assert process.returncode is not None
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def _parts(names: Sequence[str]) -> list[str]:
    """These names as lists with commas, each short enough for one argument."""
    parts: list[list[str]] = []
    size = 0
    for name in names:
        size += len(name) + 1
        if not parts or size > _NAMES_BYTES_MAX:
            parts.append([])
            size = len(name) + 1
        parts[-1].append(name)
    return [",".join(part) for part in parts]


def _short(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARS]
