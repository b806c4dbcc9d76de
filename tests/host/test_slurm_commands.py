"""The adapter of Slurm against commands that answer as Slurm does: small scripts in a folder of the test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from buoy.core.batch.slurm_text import Phase
from buoy.errors import BadInput, Unavailable
from buoy.host import slurm
from buoy.host.slurm import Slurm

Install = Callable[..., Slurm]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Makes commands out of scripts. Each call is a line in the file `calls`."""

    def made(**scripts: str) -> Slurm:
        for name, script in {"squeue": "", **scripts}.items():
            path = tmp_path / name
            path.write_text(f'#!/bin/sh\necho {name} "$#" >> {tmp_path}/calls\n{script}\n')
            path.chmod(0o755)
        return Slurm({"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    return made


def calls(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "calls").read_text().splitlines()]


def test_a_thousand_names_are_two_questions(install: Install, tmp_path: Path) -> None:
    found = install(
        squeue="echo '7|buoy.r.1|RUNNING|None|0|0|n1|pond|59:30|'", sacct="echo '8|buoy.r.2|TIMEOUT|0:0|n1|pond|60|'"
    )
    answer = asyncio.run(found.states([f"buoy.r.{number}" for number in range(1_000)], 0.0))
    assert calls(tmp_path) == ["squeue", "sacct"] and answer.accounted
    assert {name: jobs[0].phase for name, jobs in answer.jobs.items()} == {
        "buoy.r.1": Phase.ACTIVE,
        "buoy.r.2": Phase.ENDED,
    }


def test_accounting_is_asked_from_before_the_run_on_for_every_start(install: Install, tmp_path: Path) -> None:
    found = install(squeue="exit 0", sacct=f"printf '%s ' \"$@\" > {tmp_path}/words")
    asyncio.run(found.states(["buoy.r.1", "buoy.r.2"], 40 * 86_400.0))
    words = (tmp_path / "words").read_text().split()
    assert words[:5] == ["-n", "-P", "-D", "-S", "now-42days"] and "--name=buoy.r.1,buoy.r.2" in words


def test_ends_that_the_queue_shows_get_their_usage_from_accounting(install: Install, tmp_path: Path) -> None:
    rows = "7|buoy.r.1|TIMEOUT|0:0|n1|pond|61|\\n7.batch|batch|CANCELLED|0:15|n1|pond|61|2048K"
    found = install(squeue="echo '7|buoy.r.1|TIMEOUT|None|0|0|n1|pond|59:30|'", sacct=f"printf '{rows}'")
    (job,) = asyncio.run(found.states(["buoy.r.1"], 0.0)).jobs["buoy.r.1"]
    assert (job.elapsed_s, job.peak_memory_bytes, job.restart) == (61.0, 2 * 2**20, 0)
    assert calls(tmp_path) == ["squeue", "sacct"]


def test_accounting_that_answers_in_parts_is_none(install: Install) -> None:
    found = install(
        squeue="exit 0", sacct="echo '7|buoy.r.1|TIMEOUT|0:0|n1|pond|61|'; echo 'sacct: error: broken pipe'"
    )
    answer = asyncio.run(found.states(["buoy.r.1"], 0.0))
    assert (dict(answer.jobs), answer.accounted) == ({}, False)


def test_accounting_is_not_asked_for_jobs_that_the_queue_shows(install: Install, tmp_path: Path) -> None:
    found = install(squeue="echo '7|buoy.r.1|RUNNING|None|0|0|n1|pond|59:30|'", sacct="exit 1")
    assert list(asyncio.run(found.states(["buoy.r.1"], 0.0)).jobs) == ["buoy.r.1"]
    assert calls(tmp_path) == ["squeue"]


def test_without_accounting_its_silence_is_no_answer(install: Install) -> None:
    found = install(squeue="exit 0", sacct="echo 'Slurm accounting storage is disabled' >&2; exit 1")
    answer = asyncio.run(found.states(["buoy.r.1"], 0.0))
    assert (dict(answer.jobs), answer.accounted) == ({}, False)


@pytest.mark.parametrize(
    "script",
    [
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo 'Invalid job id specified' >&2; exit 1",
        "echo 'Welcome! Maintenance on Monday.'",
        "kill -KILL $$",
    ],
)
def test_an_answer_that_is_none_is_never_read_as_absence(install: Install, script: str) -> None:
    with pytest.raises(Unavailable, match="squeue"):
        asyncio.run(install(squeue=script).states(["buoy.r.1"], 0.0))


def test_a_command_that_hangs_is_ended(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "COMMAND_S", 0.2)
    with pytest.raises(Unavailable, match="no answer within"):
        asyncio.run(install(squeue="exec sleep 600").states(["buoy.r.1"], 0.0))


def test_the_id_of_a_submission_is_the_last_word_of_its_answer(install: Install, tmp_path: Path) -> None:
    found = install(sbatch=f"cat > {tmp_path}/script; echo 'Your project has 5 hours left'; echo '77;pond'")
    assert asyncio.run(found.submit(["--job-name=a b; rm"], "#!/bin/sh\ntrue\n")) == ("77", "pond")
    assert (tmp_path / "script").read_text() == "#!/bin/sh\ntrue\n"
    assert (tmp_path / "calls").read_text() == "sbatch 2\n", "an option with spaces is one word"


@pytest.mark.parametrize("script", ["exit 1", "echo", "echo 'Submitted batch job'", "echo 12 jobs"])
def test_a_submission_without_an_id_is_unclear(install: Install, script: str) -> None:
    with pytest.raises(Unavailable, match="look for the job by its name"):
        asyncio.run(install(sbatch=script).submit([], ""))


def test_nothing_is_cancelled_if_there_is_nothing_to_cancel(install: Install, tmp_path: Path) -> None:
    found = install(scancel="")
    asyncio.run(found.cancel([]))
    assert not (tmp_path / "calls").exists()
    asyncio.run(found.cancel(["7", "8"]))
    assert (tmp_path / "calls").read_text() == "scancel 2\n"


def test_a_machine_without_slurm_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="squeue is not in PATH"):
        Slurm({"PATH": str(tmp_path)})


def test_warnings_beside_an_answer_are_no_part_of_it(install: Install) -> None:
    warn = "echo 'squeue: warning: TopologyPlugin is deprecated' >&2"
    found = install(squeue=f"{warn}; echo; echo '7|buoy.r.1|RUNNING|None|0|0|n1|pond|UNLIMITED|'")
    (job,) = asyncio.run(found.states(["buoy.r.1"], 0.0)).jobs["buoy.r.1"]
    assert (job.phase, job.left_s) == (Phase.ACTIVE, None)
