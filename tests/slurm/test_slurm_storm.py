"""Graphs of known workflow shapes on a real Slurm whose nodes lose power at random: every job completes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

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
SHAPES: tuple[Shape, ...] = (montage, epigenomics, cybershake)


def _job(name: str, needs: list[str], span_s: float) -> dict[str, Any]:
    return {"id": name, "needs": needs, "run": _RUN.format(name, span_s), "resources": {"cpus": 1}}


class Storm:
    """Nodes that lose power while they have work, and come back."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._chance = random.Random(seed)
        self.cuts = 0

    def cut(self) -> None:
        slurm = self._scenario.slurm
        names = ",".join(each["name"] for each in slurm.allocations())
        busy = slurm.cluster.run("squeue", "-h", "-t", "R", "-o", "%N", f"--name={names}").stdout.split()
        if busy:
            node = self._chance.choice(sorted(set(busy)))
            slurm.cluster.crash_node(node)
            self.cuts += 1
            slurm.cluster.repair_node(node)

    def blow(self, cuts: int, span_s: float = 0.0) -> None:
        """So many cuts, and as many more as that time allows; each after a further start of a job."""
        slurm, until = self._scenario.slurm, time.monotonic() + span_s

        def moved(begun: int) -> bool:
            return len(self._scenario.begun()) > begun or slurm.status() == "completed"

        while (self.cuts < cuts or time.monotonic() < until) and slurm.status() != "completed":
            begun = len(self._scenario.begun())
            self._scenario.until(lambda begun=begun: moved(begun), "a further start")  # type: ignore[misc]
            self.cut()


def survives(scenario: Scenario, spec: dict[str, Any], seed: int, *, cuts: int, span_s: float = 0.0) -> int:
    """Every job completes, and few run twice. How many cuts there were."""
    storm = Storm(scenario, seed)
    scenario.submit(spec, "--max-allocations", "3")
    scenario.watch()
    storm.blow(cuts, span_s)
    begun = scenario.completed()
    # A node has four processors, so a cut loses at most four jobs.
    assert sum(begun.values()) - len(spec["steps"]) <= 4 * storm.cuts, begun
    scenario.clean()
    return storm.cuts


@pytest.mark.parametrize(
    ("shape", "store_url"), list(zip(SHAPES, ("postgres", "http", "file"), strict=True)), indirect=["store_url"]
)
def test_a_graph_survives_nodes_that_lose_power(scenario: Scenario, store_url: str, shape: Shape) -> None:
    scenario.slurm.store = store_url
    assert survives(scenario, shape(4, 0.3), 5, cuts=1) == 1
