"""What the tests of batch runs share: a store, the program in this process, and runners as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from buoy.cli.main import main
from buoy.host.clock import SystemClock
from buoy.stores.sqlite.store import SqliteStore
from buoy.wiring.server import ServedStore
from tests.patience import PATIENCE_S
from tests.postgres_server import fresh_url
from tests.s3.seaweed import credentials, seaweed
from tests.web.live_server import TOKEN, LiveServer


class Batch:
    """A store, a spec and its runners, as real processes."""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        self.folder = folder
        self.store = store or f"sqlite:///{folder / 'buoy.db'}"
        self.runners: list[subprocess.Popen[bytes]] = []

    def __call__(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, [*words, "--store", self.store])
        assert done.exit_code == code, f"{words}: {done.exit_code}\n{done.output}\n{done.exception!r}"
        return done.output

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))

    def submit(self, spec: dict[str, Any], run_id: str = "r1", code: int = 0) -> str:
        (self.folder / "spec.yaml").write_text(yaml.safe_dump(spec))
        return self("submit", "spec.yaml", "--id", run_id, code=code)

    def runner(self, *words: str, run_id: str = "r1") -> subprocess.Popen[bytes]:
        return self.process("runner", "--run", run_id, *words)

    def process(
        self,
        *words: str,
        env: dict[str, str] | None = None,
        python: tuple[str, ...] = ("-m", "buoy"),
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"runner-{len(self.runners)}.txt").open("w") as out:
            made = subprocess.Popen(
                [sys.executable, *python, *words, "--store", self.store],
                env={**os.environ, **(env or {})}, cwd=cwd or self.folder, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self.runners.append(made)
        return made

    def jobs(self, run_id: str = "r1") -> dict[str, dict[str, Any]]:
        return {job["job"]: job for job in self.json("jobs", run_id)["jobs"]}

    def status(self, run_id: str = "r1") -> str:
        return str(self.json("jobs", run_id)["status"])

    def seen(self) -> list[str]:
        witness = self.folder / "witness"
        return witness.read_text().splitlines() if witness.exists() else []

    def said(self) -> str:
        """What all runners printed."""
        return "".join((self.folder / f"runner-{each}.txt").read_text() for each in range(len(self.runners)))

    def end(self) -> None:
        for each in self.runners:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGCONT)
                os.killpg(each.pid, signal.SIGKILL)
            each.wait(PATIENCE_S)


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batch]:
    monkeypatch.chdir(tmp_path)
    made = Batch(tmp_path)
    yield made
    made.end()


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty store of the kind that the test names."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'buoy.db'}"
        case "file":
            yield f"file://{tmp_path / 'store'}"
        case "postgres":
            yield fresh_url()
        case "s3":
            for name, value in credentials().items():
                monkeypatch.setenv(name, value)
            with seaweed(tmp_path / "bucket") as server:
                yield server.url("batch")
        case _:
            monkeypatch.setenv("BUOY_TOKEN", TOKEN)
            live = LiveServer(lambda: _served(tmp_path / "served.db"))
            yield live.url
            live.stop()


async def _served(path: Path) -> ServedStore:
    clock = SystemClock()
    return ServedStore(await SqliteStore.open(path, clock=clock, own_clock=clock), clock)
