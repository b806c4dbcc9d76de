"""The folder of a crash test: it is removed after everything that writes to it has ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from buoy.engine.spec.workflow import load_spec
from buoy.host.shell import shell
from buoy.testing import Options, crash_test
from buoy.testing.crashtest.scratch import LOGS, remove
from tests.patience import wait_until

SPEC = """\
name: side-by-side
steps:
  - {id: quick, run: "true"}
  - {id: other, run: "true"}
"""
RUNS_A_COMMAND = """
import asyncio, sys
from pathlib import Path
from buoy.core.ids import LeafId, RunId
from buoy.host.clock import SystemClock
from buoy.host.shell.shell import GuardedShell
from buoy.ports.host import Command

folder = Path(sys.argv[1])
writes = 'trap "" TERM; i=0; while :; do i=$((i+1)); echo > "$(dirname "$BUOY_RESULT_FILE")/$i"; sleep 0.01; done'
command = Command(
    run_id=RunId("r"), leaf=LeafId("a#1"), attempt=1, command=writes, directory=str(folder), variables={}, grace_s=0.3
)
asyncio.run(GuardedShell(folder / sys.argv[2], SystemClock()).run(command))
"""


def test_nothing_is_left_of_a_command_that_was_about_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that makes a command's folder is slower than the cancellation of its run."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    (tmp_path / "spec.yaml").write_text(SPEC)
    prepare = shell._prepare

    def slowly(folder: Path, result: Path) -> int:
        if result.name.startswith("other"):
            threading.Event().wait(0.1)  # a disk that takes its time
        return prepare(folder, result)

    monkeypatch.setattr(shell, "_prepare", slowly)
    monkeypatch.chdir(tmp_path)
    spec = load_spec("spec.yaml", calls=(), given={})
    report = crash_test(spec, spec.arguments.encode((), {}), [], Options(max_crashes=3, allow=["repeated"]))
    assert report.ok
    assert list(place.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_when_its_command_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "scenario"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", RUNS_A_COMMAND, str(folder), LOGS]) as process:
        wait_until(lambda: len(list(folder.glob(f"{LOGS}/r/*"))) > 5, "the command to write")
        process.kill()
    remove(folder)
    assert not folder.exists()
