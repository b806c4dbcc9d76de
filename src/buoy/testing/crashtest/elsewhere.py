"""Elsewhere: what a run did here is replayed in fresh interpreters, where sets of texts have another order.

After a crash in this process the hash seed is the same. So code that depends on the order of a set would replay without
a difference. The fresh interpreters only replay: they execute no step.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput
from buoy.testing.crashtest.errands import errand_for, how_it_ended
from buoy.testing.crashtest.fresh import Interpreter
from buoy.testing.crashtest.gate import Point
from buoy.testing.crashtest.outcomes import difference_in
from buoy.testing.crashtest.places import place_of
from buoy.testing.crashtest.process import Job
from buoy.testing.crashtest.scenario import Played, Setting, play_in, read_logs
from buoy.testing.crashtest.scratch import DATA, scratch
from buoy.testing.local_host import Shelf
from buoy.testing.skipping import START_AT, SkippingClock

# All that replay without a difference are these many; to tell chance from patched code there may be more.
_LEAST, _MOST = 2, 5
_REFUSED = "refused: "


class Elsewhere(msgspec.Struct, frozen=True):
    """What the fresh interpreters have shown. `difference`: the first, from code that does not repeat itself. `note`:
    why they could not show it."""

    difference: str | None = None
    note: str | None = None


class Rehearsal:
    """Replays one run elsewhere. Made early, since an interpreter needs half a second to start. Close it."""

    def __init__(self, job: Job, setting: Setting) -> None:
        self._job = job
        self._setting = replace(setting, store="sqlite")
        self._interpreters: list[Interpreter] = []
        self._note: str | None = None
        if isinstance(job.workflow, SpecWorkflow):
            return  # a spec has no code that could depend on anything
        try:
            place = place_of(job.workflow)
        except BadInput as problem:
            self._note = str(problem)
            return
        self._interpreters = [Interpreter(place, f"{setting.seed} elsewhere {number}") for number in range(_MOST)]
        for each in self._interpreters[:_LEAST]:
            each.start()

    def play(self, writes: int) -> Elsewhere:
        """The run is played here up to its last write, and replayed there. `writes`: how many it has."""
        if not self._interpreters:
            return Elsewhere(note=_not_tried(self._note) if self._note else None)
        with scratch() as home:
            origin = home / "origin"
            origin.mkdir()
            played = play_in(origin, self._job, self._setting, Point(writes, "before"), processes_max=1)
            if played.ended != "crashed":
                return Elsewhere()  # it took another way, which is a finding of its own
            seen: list[str | None] = []
            for number, each in enumerate(self._interpreters):
                if number >= _LEAST and (len(set(seen)) > 1 or None in seen):
                    break
                folder = home / str(number)
                shutil.copytree(origin, folder)
                ended, difference = self._replayed(each, folder, played)
                if ended.startswith(_REFUSED):
                    return Elsewhere(note=_not_tried(ended.removeprefix(_REFUSED)))
                seen.append(difference)
        return _concluded(seen)

    def _replayed(self, interpreter: Interpreter, folder: Path, played: Played) -> tuple[str, str | None]:
        errand = errand_for(self._job, self._setting, None, 2, START_AT + played.passed_s, replays=True)
        code = interpreter.run(errand, folder)
        logs = read_logs(Shelf(self._setting.store, folder / DATA), SkippingClock())
        return how_it_ended(folder, errand.number, code), difference_in(replace(played, logs=logs))

    def close(self) -> None:
        for each in self._interpreters:
            each.close()


def _concluded(seen: Sequence[str | None]) -> Elsewhere:
    different = [each for each in seen if each is not None]
    if not different:
        return Elsewhere()
    if len(set(seen)) > 1:
        return Elsewhere(difference=different[0])
    # All of them differ in one and the same way: that is no chance, and may be a test double.
    return Elsewhere(
        note=f"fresh processes take another way than this one ({different[0]}): the code depends on what only this "
        "process has, such as a global or a patched function; --real (real=True) uses fresh processes throughout"
    )


def _not_tried(reason: str) -> str:
    return f"whether the code depends on the order of sets or on hash() was not tried: {reason}"
