"""Real processes: the same scenarios with processes of their own, real SIGKILL and a store on disk.

The clock of a process begins where the one that died was. The parent runs nothing of the workflow. The processes come
from several interpreters, each with another hash seed, so that the one that takes over never has the seed of the dead.
"""

from __future__ import annotations

import signal
from itertools import cycle
from pathlib import Path

from buoy.host.clock import SystemClock
from buoy.testing.crashtest.errands import NOTES, Errand, errand_for, how_it_ended
from buoy.testing.crashtest.fresh import Interpreter
from buoy.testing.crashtest.gate import Point
from buoy.testing.crashtest.notes import NoteFile
from buoy.testing.crashtest.places import place_of
from buoy.testing.crashtest.process import Job
from buoy.testing.crashtest.scenario import Played, Setting, read_logs
from buoy.testing.crashtest.scratch import DATA, scratch
from buoy.testing.local_host import Shelf
from buoy.testing.skipping import START_AT, SkippingClock

_PROCESSES_MAX = 5
# A set of two texts has the same order under all of them in one test of 16.
_HASH_SEEDS = 5


class RealPlayer:
    """Plays scenarios in real processes. Close it."""

    def __init__(self, job: Job, setting: Setting) -> None:
        self._job = job
        self._setting = setting
        place = place_of(job.workflow)
        self._interpreters = [Interpreter(place, f"{setting.seed} {number}") for number in range(_HASH_SEEDS)]
        self._next = cycle(self._interpreters)

    def play(self, point: Point | None, *, looks_at_code: bool = False) -> Played:
        """One scenario, in processes of its own."""
        real = SystemClock()
        began = real.monotonic()
        with scratch() as folder, self._shelf(folder) as shelf:
            start_at, ended = START_AT, "crashed"
            for number in range(1, _PROCESSES_MAX + 1):
                errand = errand_for(self._job, self._setting, point, number, start_at, looks_at_code=looks_at_code)
                ended = self._one_process(errand, folder)
                logs = read_logs(shelf, SkippingClock())
                times = [log[-1].at for log in logs.values() if log]
                found = NoteFile.notes_in(folder / NOTES)
                start_at = max([START_AT, *times, *(note.at for note in found)])
                if ended != "crashed":
                    break
        return Played(point, ended, found, logs, real.monotonic() - began, start_at - START_AT)

    def _shelf(self, folder: Path) -> Shelf:
        data = folder / DATA
        data.mkdir()
        return Shelf(self._setting.store, data)

    def _one_process(self, errand: Errand, folder: Path) -> str:
        code = next(self._next).run(errand, folder)
        return "crashed" if code == -signal.SIGKILL else how_it_ended(folder, errand.number, code)

    def close(self) -> None:
        for each in self._interpreters:
            each.close()
