"""A store as another user sees it, who may read it and not write to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from buoy.cli.main import main

from .conftest import FLOWS, Buoy, Spawn, until

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that another user may pass through: pytest's own ones are private."""
    made = Path(tempfile.mkdtemp(prefix="buoy-others-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def shown_to_another(buoy: Buoy, *words: str) -> tuple[int, dict[str, object]]:
    """Exit code and output of a command of a user who may only read."""
    # All modules are loaded before: another user may not be allowed to read the files of this Python.
    CliRunner().invoke(main, [*words, "--store", buoy.store, "--json"])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir("/")
        os.seteuid(NOBODY)
        found = CliRunner().invoke(main, [*words, "--store", buoy.store, "--json"])
        os.write(write, json.dumps([found.exit_code, found.stdout, f"{found.output} {found.exception!r}"]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        code, out, everything = json.loads(answer.read())
    os.waitpid(child, 0)
    assert out, everything
    return code, json.loads(out)


@pytest.mark.parametrize("readable", [False, True])
def test_a_dead_worker_is_never_alive_to_whom_may_only_read(
    buoy: Buoy, spawn: Spawn, place: Path, readable: bool
) -> None:
    buoy.store = f"file://{place / 'store'}"
    buoy("start", f"{FLOWS}:hanging", "--arg", f"witness={buoy.witness}", "--id", "held")
    worker = spawn("worker", str(FLOWS))
    until(lambda: "stuck" in buoy.seen(), worker)
    worker.send(signal.SIGKILL)
    worker.wait()
    for path in (place / "store").rglob("*"):
        locks = "runners-locks" in path.parts
        path.chmod((0o755 if path.is_dir() else 0o644) if readable or not locks else 0o700)
    (place / "store").chmod(0o755)
    health = "dead" if readable else "unknown"
    code, report = shown_to_another(buoy, "status")
    assert code == 1 and report["health"] == {health: 1}
    _, told = shown_to_another(buoy, "why", "held")
    assert told["health"] == health
    if not readable:
        assert "Permission denied" in str(told["wrong"])
    _, page = shown_to_another(buoy, "ps")
    assert [each["health"] for each in page["runs"]] == [health]  # type: ignore[attr-defined]
    assert buoy.json("status", code=1)["health"] == {"dead": 1}, "its own user knows better"
