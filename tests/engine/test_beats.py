"""Beats: what they carry, and that a process may end under them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.engine.services.heartbeat import Heartbeat
from buoy.errors import Unavailable
from buoy.host.clock import SystemClock
from buoy.ports.host import Clock
from buoy.ports.records import Beat, Progress
from buoy.testing.clock import ManualClock
from tests.patience import PATIENCE_S, until

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
        self.gone: list[str] = []
        self.errors = 0

    def holding(self) -> int:
        return len(self.progress)

    def troubles(self) -> tuple[int, str | None]:
        return self.errors, "it rained" if self.errors else None

    def sweep_health(self) -> None:
        return None

    def declared_gone(self, why: str) -> None:
        self.gone.append(why)


class _Sent:
    """The one thing of a store that beats use here."""

    single_host = True

    def __init__(self, enough: int, runner: _Runner) -> None:
        self.beats: list[Beat] = []
        self._enough = enough
        self._runner = runner
        self.loop: Heartbeat | None = None

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        self.beats.append(beat)
        # The run ends right after its progress was reported.
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

    sent.loop = Heartbeat(runner, opened, fences=False, beat_s=3600.0)
    await sent.loop.run()
    assert [list(beat.progress) for beat in sent.beats] == [["a"], []]
    assert runner.gone == []


async def test_a_beat_says_how_long_ago_the_last_error_was() -> None:
    runner, clock = _Runner(), ManualClock()
    runner.clock = clock
    sent: Any = _Sent(9, runner)
    loop = Heartbeat(runner, lambda: sent, fences=False)
    for errors in (0, 2, 2, 3):
        clock.advance(100.0)
        runner.errors = errors
        await loop.last(sent)
    assert [(each.errors, each.error_age_s) for each in sent.beats] == [(0, 0.0), (2, 0.0), (2, 100.0), (3, 0.0)]


class _Store:
    """A store with scripted heartbeats: they arrive, fail, or get no answer."""

    def __init__(self, *beats: str, closes: bool = True) -> None:
        self._beats = list(beats)
        self._closes = closes
        self.closed = False

    async def beat(self, runner: RunnerId, beat: Beat) -> bool:
        what = self._beats.pop(0) if self._beats else "hangs"
        if what == "hangs":
            await asyncio.Event().wait()
        if what == "fails":
            raise Unavailable("the connection is broken")
        return what == "arrives"

    async def close(self) -> None:
        if not self._closes:
            await asyncio.Event().wait()
        self.closed = True


def _beats(runner: _Runner, *stores: _Store | Exception, **times: float) -> tuple[Heartbeat, list[_Store]]:
    """Beats that open these stores, one after the other; and those that were opened."""
    waiting, opened = list(stores), list[_Store]()

    async def open_store() -> Any:
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(found, Exception):
            raise found
        opened.append(found)
        return found

    return Heartbeat(runner, open_store, fences=True, beat_s=0.01, **times), opened


async def test_a_beat_that_hangs_does_not_delay_the_fence() -> None:
    runner = _Runner()
    beats, opened = _beats(runner, _Store("arrives"), attempt_s=1e6, fence_after_s=0.2)
    running = asyncio.create_task(beats.run())
    await until(lambda: bool(runner.gone))
    assert runner.gone == ["no beat was confirmed for 0.2 s"]
    assert not running.done(), "the call still hangs"
    running.cancel()
    assert len(opened) == 1


async def test_a_store_that_hangs_while_it_is_opened_does_not_delay_the_fence() -> None:
    runner = _Runner()

    async def open_store() -> Any:
        await asyncio.Event().wait()

    running = asyncio.create_task(
        Heartbeat(runner, open_store, fences=True, beat_s=0.01, attempt_s=1e6, fence_after_s=0.2).run()
    )
    await until(lambda: bool(runner.gone))
    running.cancel()


async def test_a_store_that_never_opened_fences_all_the_same() -> None:
    runner = _Runner()
    beats, opened = _beats(runner, Unavailable("no server there"), fence_after_s=0.2)
    await asyncio.wait_for(beats.run(), PATIENCE_S)
    assert runner.gone == ["no beat was confirmed for 0.2 s"]
    assert (opened, beats.last_error) == ([], "Unavailable: no server there")


async def test_an_attempt_ends_in_time_and_the_next_one_has_a_new_connection() -> None:
    runner = _Runner()
    stores = [_Store("arrives", "hangs"), _Store("fails", closes=False), _Store("arrives", "refused")]
    beats, opened = _beats(runner, *stores, attempt_s=0.05)
    await asyncio.wait_for(beats.run(), PATIENCE_S)
    assert opened == stores
    assert [store.closed for store in stores] == [True, False, True]
    assert runner.gone == ["its beat was refused: another process declared it gone"]
    assert beats.errors == 3, "two beats, and a connection that did not close"


async def test_beats_that_arrive_put_the_fence_off_from_the_time_of_sending() -> None:
    runner = _Runner()
    beats, _ = _beats(runner, _Store(*["arrives"] * 320, "refused"), fence_after_s=3.0)
    await asyncio.wait_for(beats.run(), PATIENCE_S)
    assert runner.gone == ["its beat was refused: another process declared it gone"]


async def test_a_runner_whose_death_others_can_see_never_fences_itself() -> None:
    runner = _Runner()

    async def open_store() -> Any:
        return _Store("fails")

    beats = Heartbeat(runner, open_store, fences=False, beat_s=0.01, fence_after_s=0.0)
    running = asyncio.create_task(beats.run())
    await until(lambda: beats.errors >= 3)
    beats.stop()
    await asyncio.wait_for(running, PATIENCE_S)
    assert runner.gone == []


def test_the_fence_of_a_beats_thread_reaches_its_runner_while_a_call_hangs() -> None:
    runner = _Runner()
    beats, _ = _beats(runner, _Store("arrives"), attempt_s=0.5, fence_after_s=0.1)
    thread = threading.Thread(target=beats.run_in_thread)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and runner.gone == ["no beat was confirmed for 0.1 s"]
