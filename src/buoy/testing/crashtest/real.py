"""Real processes: the same scenarios with forked processes, real SIGKILL and a store on disk.

The child writes what it sees into a file, one line at a time, so that it survives the kill. Its clock begins where the
one that died was. The parent runs nothing of the workflow, so that every child begins with fresh globals.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from buoy.errors import Problem
from buoy.system import LockFiles, SystemClock
from buoy.testing.crashtest.gate import Point
from buoy.testing.crashtest.notes import NoteFile
from buoy.testing.crashtest.process import Job, Process
from buoy.testing.crashtest.scenario import Played, Setting, read_logs, seed_chance
from buoy.testing.crashtest.watch import Watch, watching
from buoy.testing.local_host import Shelf
from buoy.testing.skipping import START_AT, SkippingClock

_PROCESSES_MAX = 5


def play_really(job: Job, setting: Setting, point: Point | None, *, looks_at_code: bool = False) -> Played:
    """One scenario, in processes of its own."""
    real = SystemClock()
    began = real.monotonic()
    with tempfile.TemporaryDirectory(prefix="buoy-crashtest-") as name:
        folder = Path(name)
        notes = NoteFile(folder / "notes.jsonl")
        data = folder / "data"
        data.mkdir()
        watch = Watch(notes.add, real.monotonic, setting.stubs)
        watch.looks_at_code = looks_at_code
        start_at, ended = START_AT, "crashed"
        for number in range(1, _PROCESSES_MAX + 1):

            def make(number: int = number, start_at: float = start_at) -> Process:
                seed_chance(setting.seed, point, number)
                clock, locks, shelf = SkippingClock(start_at), LockFiles(folder / "locks"), Shelf(setting.store, data)
                here = point and point.of_process(number)
                return Process(job, number, shelf, clock, watch, locks, here, folder / "logs")

            ended = _one_process(make, watch, notes, number)
            logs = read_logs(Shelf(setting.store, data), SkippingClock())
            times = [log[-1].at for log in logs.values() if log]
            start_at = max([START_AT, *times, *(note.at for note in notes.read())])
            if ended != "crashed":
                break
        found = notes.read()
        notes.close()
    return Played(point, ended, found, logs, real.monotonic() - began, start_at - START_AT)


def _one_process(make: Callable[[], Process], watch: Watch, notes: NoteFile, number: int) -> str:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(make, watch)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "crashed"
    last = [note for note in notes.read() if note.what == "ended" and note.process == number]
    return last[-1].text if last else f"stuck: the process ended with {os.waitstatus_to_exitcode(status)}"


def _child(make: Callable[[], Process], watch: Watch) -> NoReturn:
    """Never returns: whatever happens, the parent's code must not go on in the child."""
    try:
        process = make()
        process.kill = True
        with watching(watch):
            ended = process.run()
        watch.tell("ended", text=ended)
    except Problem as problem:
        watch.tell("ended", text=f"refused: {problem}")
    except BaseException:  # noqa: BLE001 - told to the parent, and the child ends at once
        watch.tell("ended", text=f"stuck: {traceback.format_exc(limit=3)}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
