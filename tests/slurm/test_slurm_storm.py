"""Graphs of known workflow shapes on a real Slurm under losses of every kind: every job completes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.slurm.conftest import SlurmBatch
from tests.slurm.scenario import Scenario, scenario

pytestmark = pytest.mark.slow

__all__ = ["scenario"]

_RUN = "echo begun {0} >> witness; sleep {1}; echo done {0} >> witness"


def montage(width: int, span_s: float) -> dict[str, Any]:
    """As Montage: projections, differences of neighbours, one fit, a background for each, one picture."""
    parts = [_job(f"project_{k}", [], span_s) for k in range(width)]
    parts += [_job(f"diff_{k}", [f"project_{k}", f"project_{(k + 1) % width}"], span_s) for k in range(width)]
    parts.append(_job("fit", [f"diff_{k}" for k in range(width)], span_s))
    parts += [_job(f"background_{k}", ["fit", f"project_{k}"], span_s) for k in range(width)]
    return {"name": "montage", "steps": [*parts, _job("add", [f"background_{k}" for k in range(width)], span_s)]}


def epigenomics(width: int, span_s: float) -> dict[str, Any]:
    """As Epigenomics: one split, a pipeline of four for each part, one merge, one index."""
    parts, stages = [_job("split", [], span_s)], ("filter", "convert", "pack", "map")
    for k in range(width):
        for before, stage in zip(("split", *stages), stages, strict=False):
            parts.append(_job(f"{stage}_{k}", ["split" if before == "split" else f"{before}_{k}"], span_s))
    parts.append(_job("merge", [f"map_{k}" for k in range(width)], span_s))
    return {"name": "epigenomics", "steps": [*parts, _job("index", ["merge"], span_s)]}


def cybershake(width: int, span_s: float) -> dict[str, Any]:
    """As CyberShake: two roots, many syntheses that need both, a peak for each, two archives."""
    parts = [_job("sgt_x", [], span_s), _job("sgt_y", [], span_s)]
    parts += [_job(f"seismogram_{k}", ["sgt_x", "sgt_y"], span_s) for k in range(width)]
    parts += [_job(f"peak_{k}", [f"seismogram_{k}"], span_s) for k in range(width)]
    parts.append(_job("zip_seismograms", [f"seismogram_{k}" for k in range(width)], span_s))
    return {"name": "cybershake", "steps": [*parts, _job("zip_peaks", [f"peak_{k}" for k in range(width)], span_s)]}


Shape = Callable[[int, float], dict[str, Any]]


def _job(name: str, needs: list[str], span_s: float) -> dict[str, Any]:
    return {"id": name, "needs": needs, "run": _RUN.format(name, span_s), "resources": {"cpus": 1}}


class Storm:
    """Losses of every kind under a run, each while it has work, and each after a further start of a job."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._chance = random.Random(seed)
        self.struck: list[str] = []

    def strike(self, kind: str) -> None:
        """Waits for work, and takes it away."""
        slurm = self._scenario.slurm
        begun = len(self._scenario.begun())
        self._scenario.until(lambda: len(self._scenario.begun()) > begun or self._over(), "a further start")
        found: list[str] = []
        self._scenario.until(lambda: found.extend(self._busy()) or found or self._over(), "an allocation that runs")
        if self._over():
            return
        job_id, node = self._chance.choice(found).split()
        getattr(self, f"_{kind}")(slurm, job_id, node)
        self.struck.append(kind)

    def _over(self) -> bool:
        return self._scenario.slurm.status() == "completed"

    def _busy(self) -> list[str]:
        """Job id and node of the allocations that run."""
        slurm = self._scenario.slurm
        names = ",".join(each["name"] for each in slurm.allocations())
        return sorted(
            slurm.cluster.run("squeue", "-h", "-t", "R", "-o", "%i %N", f"--name={names}").stdout.splitlines()
        )

    def _power_cut(self, slurm: SlurmBatch, job_id: str, node: str) -> None:
        slurm.cluster.crash_node(node)
        slurm.cluster.repair_node(node)

    def _cancel(self, slurm: SlurmBatch, job_id: str, node: str) -> None:
        slurm.cluster.run("scancel", job_id)

    def _preemption(self, slurm: SlurmBatch, job_id: str, node: str) -> None:
        slurm.cluster.run("sbatch", "-p", "high", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")

    def _killed_runner(self, slurm: SlurmBatch, job_id: str, node: str) -> None:
        here = [each for each in slurm.json("status")["runners"] if each["host"] == node]
        for each in here:
            slurm.cluster.kill_on(node, each["pid"])

    def _killed_watch(self, slurm: SlurmBatch, job_id: str, node: str) -> None:
        """And what it looked after is lost before it comes back."""
        self._scenario.kill_watch()
        slurm.cluster.run("scancel", job_id)
        self._scenario.watch()


# What strikes the run on each store. With `--requeue` a preempted allocation, or one on a node that crashed, comes back
# under its id.
STORMS: tuple[tuple[Shape, str, str, tuple[str, ...]], ...] = (
    (montage, "postgres", "--no-requeue", ("power_cut", "killed_runner", "preemption")),
    (epigenomics, "http", "--requeue", ("preemption", "power_cut", "killed_watch")),
    (cybershake, "file", "--requeue", ("killed_runner", "cancel", "preemption")),
)


@pytest.mark.parametrize(("shape", "store_url", "requeue", "losses"), STORMS, indirect=["store_url"])
def test_a_graph_survives_a_storm(
    scenario: Scenario, store_url: str, shape: Shape, requeue: str, losses: tuple[str, ...]
) -> None:
    scenario.slurm.store = store_url
    storm, spec = Storm(scenario, 5), shape(4, 0.3)
    scenario.submit(spec, "--max-allocations", "3", requeue)
    scenario.watch()
    for each in losses:
        storm.strike(each)
    begun = scenario.completed()
    assert storm.struck == list(losses), "the run was over too early"
    # A node has four processors, so a loss takes at most four jobs.
    assert sum(begun.values()) - len(spec["steps"]) <= 4 * len(losses), begun
    # A process that is killed between a commit and its indexes leaves an entry, which the next sweep removes.
    scenario.slurm("sweeper", "--once")
    scenario.clean()
