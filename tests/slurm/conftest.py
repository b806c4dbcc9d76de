"""What the tests with a real Slurm share: private clusters, and batch runs that work on them.

The clusters are made of Debian packages. `.ci/run` installs them, and there a missing cluster is a failure. Elsewhere
the tests are skipped where the packages are not there, or where the machine does not let a cluster start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from tests.batch.conftest import Batch, store_url
from tests.patience import wait_until
from tests.slurm.cluster import PACKAGES, Cluster, missing


def _started(made: Cluster) -> Iterator[Cluster]:
    try:
        try:
            made.start()
        except AssertionError as error:
            # Of this machine, not of Buoy: no part of it has been called yet.
            _unavailable(f"a private Slurm does not start on this machine: {error}\n{made.logs()}")
        yield made
    finally:
        made.stop()


def _unavailable(why: str) -> NoReturn:
    assert not os.environ.get("CI"), f"CI tests with a real Slurm: {why}"
    pytest.skip(why)


def _installed() -> None:
    absent = missing()
    if absent:
        _unavailable(f"Slurm is not installed: {', '.join(absent)}; apt-get install {PACKAGES}")


@pytest.fixture(scope="session")
def plain_cluster() -> Iterator[Cluster]:
    """No accounting: only the controller knows what became of a job, and only for some minutes."""
    _installed()
    yield from _started(Cluster())


@pytest.fixture(scope="session")
def accounted_cluster() -> Iterator[Cluster]:
    """With slurmdbd, and limits of memory where this machine can have them."""
    _installed()
    yield from _started(Cluster(nodes=3, accounted=True, limited=True))


@pytest.fixture
def cluster(accounted_cluster: Cluster) -> Cluster:
    """The cluster of the test; modules may choose another one."""
    return accounted_cluster


class SlurmBatch(Batch):
    """A store and its runs on the private cluster."""

    def __init__(self, folder: Path, cluster: Cluster, store: str | None = None) -> None:
        super().__init__(folder, store)
        self.cluster = cluster

    def write(self, spec: dict[str, Any]) -> None:
        (self.folder / "spec.yaml").write_text(yaml.safe_dump(spec))

    def allocations(self, run_id: str = "r1") -> list[dict[str, Any]]:
        return list(self.json("slurm", "allocations", run_id)["allocations"])

    def ids(self, run_id: str = "r1") -> list[str]:
        return [each["job_id"] for each in self.allocations(run_id) if each.get("job_id")]

    def until_status(self, status: str, run_id: str = "r1") -> None:
        wait_until(lambda: self.status(run_id) == status, f"{run_id} to be {status}\n{self.outputs()}")

    def outputs(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.rglob("*.out"))

    def end(self) -> None:
        """No job of this test stays on the nodes of the next one."""
        super().end()
        queued = self.cluster.run("squeue", "-h", "-o", "%i").stdout.split()
        if queued:
            self.cluster.run("scancel", *queued)
        wait_until(lambda: not self.cluster.run("squeue", "-h", "-o", "%i").stdout.split(), "an empty queue")
        self.cluster.resume_drained()


@pytest.fixture
def slurm(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmBatch]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", cluster.env["PATH"])
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    made = SlurmBatch(tmp_path, cluster)
    yield made
    made.end()


__all__ = ["SlurmBatch", "accounted_cluster", "cluster", "plain_cluster", "slurm", "store_url"]
