"""Beats: what they carry, and that a process may end under them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.engine.beats import Beats
from buoy.ports import Beat, Clock, Progress
from buoy.system import SystemClock
from tests.patience import PATIENCE_S

# The beat's thread outlives the loop by up to a second; the last thing that this process does is to wait for it.
LEAVES = """
import asyncio, atexit, sys, threading, buoy

@buoy.workflow
async def nothing() -> int:
    return 7

async def main() -> None:
    async with buoy.open(sys.argv[1], workflows=[nothing]) as app:
        print(await (await app.start(nothing)).result())

def last() -> None:
    for thread in threading.enumerate():
        if thread.name == "buoy-beat":
            thread.join(120)
            print("waited", thread.is_alive())

atexit.register(last)
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_process_that_ends_at_once_says_nothing_about_its_beats(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(LEAVES)
    store = f"{kind}://{tmp_path / 'store'}" if kind == "file" else f"{kind}:///{tmp_path / 'store.db'}"
    done = subprocess.run(
        [sys.executable, str(script), store], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "7"


class _Runner:
    """A runner as its beats see it."""

    def __init__(self) -> None:
        self.id = RunnerId("r1")
        self.clock: Clock = SystemClock()
        self.progress: dict[RunId, Progress] = {}

    def holding(self) -> int:
        return len(self.progress)

    def troubles(self) -> tuple[int, str | None]:
        return 0, None

    def sweep_health(self) -> None:
        return None

    def declared_gone(self, why: str) -> None:
        raise AssertionError(why)


class _Sent:
    """The one thing of a store that beats use here."""

    one_host = True

    def __init__(self, enough: int, runner: _Runner) -> None:
        self.beats: list[Beat] = []
        self._enough = enough
        self._runner = runner
        self.loop: Beats | None = None

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        self.beats.append(beat)
        # The run ends right after its progress was told.
        self._runner.progress = {}
        if len(self.beats) == self._enough and self.loop is not None:
            self.loop.stop()
        return True

    async def close(self) -> None:
        return


async def test_progress_that_is_over_is_taken_back_before_the_next_beat_is_due() -> None:
    runner = _Runner()
    runner.progress = {RunId("a"): Progress(at=1.0, done=3, leaf="x#1")}
    sent: Any = _Sent(2, runner)

    async def opened() -> Any:
        return sent

    sent.loop = Beats(runner, opened, beat_s=3600.0)
    await sent.loop.run()
    assert [list(beat.progress) for beat in sent.beats] == [["a"], []]
