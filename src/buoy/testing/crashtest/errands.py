"""Errands: what one process of a scenario does in a fresh interpreter.

The parent writes the errand into the scenario's folder. The child writes its notes into the same folder, one line at a
time, so that they survive a kill.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from buoy.core.ids import RunnerId
from buoy.core.log import codec
from buoy.engine.authoring.definitions import Workflow
from buoy.errors import Problem
from buoy.host.clock import SystemClock
from buoy.host.lock_files import LockFiles
from buoy.testing.crashtest.gate import Point
from buoy.testing.crashtest.notes import NoteFile
from buoy.testing.crashtest.process import Job, Process, make_job
from buoy.testing.crashtest.scenario import Setting, seed_chance
from buoy.testing.crashtest.scratch import DATA, LOGS
from buoy.testing.crashtest.watch import BodyWatch, watching
from buoy.testing.local_host import KnownDeaths, Shelf
from buoy.testing.script import Script, ScriptEntry
from buoy.testing.skipping import SkippingClock

NOTES, LOCKS = "notes.jsonl", "locks"
_ERRAND = "errand.json"


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """All that a child has to know. `replays`: it only replays what is in the store, and executes no step."""

    stored: msgspec.Raw
    script: list[ScriptEntry]
    calls: tuple[str, ...]
    writes_max: int
    stubs: dict[str, msgspec.Raw]
    store: str
    seed: int
    point: Point | None
    number: int
    start_at: float
    looks_at_code: bool
    replays: bool


def errand_for(
    job: Job, setting: Setting, point: Point | None, number: int, start_at: float, *,
    looks_at_code: bool = False, replays: bool = False,
) -> Errand:  # fmt: skip
    """What the process of that number in this scenario has to do."""
    return Errand(
        stored=job.stored,
        script=[replace(each, value=codec.encode(each.value, each.where)) for each in job.script.entries],
        calls=job.calls,
        writes_max=job.writes_max,
        stubs={name: codec.encode(value, f"the stub of {name}") for name, value in setting.stubs.items()},
        store=setting.store,
        seed=setting.seed,
        point=point,
        number=number,
        start_at=start_at,
        looks_at_code=looks_at_code,
        replays=replays,
    )


def write_errand(errand: Errand, folder: Path) -> None:
    (folder / _ERRAND).write_bytes(msgspec.json.encode(errand))


def how_it_ended(folder: Path, number: int, code: int) -> str:
    """What the process of that number says of its own end; `code`: its exit code."""
    last = [note for note in NoteFile.notes_in(folder / NOTES) if note.what == "ended" and note.process == number]
    return last[-1].text if last else f"stuck: the process ended with {code}"


# ---- in the child


def do_errand(folder: Path, find: Callable[[], Workflow[..., Any]]) -> NoReturn:
    """Never returns: threads of steps that do not end must not keep the child alive."""
    errand = msgspec.json.decode((folder / _ERRAND).read_bytes(), type=Errand)
    stubs = {name: msgspec.json.decode(value) for name, value in errand.stubs.items()}
    watch = BodyWatch(NoteFile(folder / NOTES).add, SystemClock().monotonic, stubs)
    watch.process, watch.looks_at_code, watch.executes = errand.number, errand.looks_at_code, not errand.replays
    try:
        process = _process(errand, find(), folder, watch)
        with watching(watch):
            ended = process.run()
        watch.tell("ended", text=ended)
    except Problem as problem:
        watch.tell("ended", text=f"refused: {problem}")
    except BaseException:  # noqa: BLE001 - reported to the parent, and the child ends at once
        watch.tell("ended", text=f"stuck: {traceback.format_exc(limit=3)}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _process(errand: Errand, workflow: Workflow[..., Any], folder: Path, watch: BodyWatch) -> Process:
    job = make_job(workflow, errand.stored, Script.of(errand.script), errand.calls, errand.writes_max)
    seed_chance(errand.seed, errand.point, errand.number)
    deaths: Any = LockFiles(folder / LOCKS)
    if errand.replays:
        # Those before it were no processes, and their end is known.
        deaths = KnownDeaths()
        deaths.dead.update(RunnerId(f"process-{number}") for number in range(1, errand.number))
    here = errand.point and errand.point.of_process(errand.number)
    clock, shelf = SkippingClock(errand.start_at), Shelf(errand.store, folder / DATA)
    process = Process(job, errand.number, shelf, clock, watch, deaths, here, folder / LOGS)
    process.kill = not errand.replays
    return process
