"""The crash test itself: the reference, then one scenario for every point, then the verdict."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from buoy.engine.definitions import Registry, Workflow
from buoy.errors import BadInput
from buoy.system import SystemClock
from buoy.testing.crashtest.gate import Point
from buoy.testing.crashtest.judge import Judge
from buoy.testing.crashtest.process import Job
from buoy.testing.crashtest.real import play_really
from buoy.testing.crashtest.report import KINDS, Crash, Kind, Report
from buoy.testing.crashtest.scenario import Played, Setting, play
from buoy.testing.local_host import STORES, check_no_loop, neighbours
from buoy.testing.person import asked_in
from buoy.testing.script import Entries, as_script

Progress = Callable[[int, int, Crash], None]

WRITES_MAX = 5_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may turn.

    `stubs`: canned results of steps, by name. `repeatable`: steps that may run twice, by name or pattern.
    `allow`: kinds of findings that are none here. `cancels`: whether the run is also cancelled at every point.
    `calls`: of a spec, the modules whose functions it may call.
    """

    store: str = "memory"
    stubs: Mapping[str, Any] = {}
    repeatable: Sequence[str] = ()
    allow: Sequence[str] = ()
    max_crashes: int | None = None
    seed: int = 0
    cancels: bool = True
    real: bool = False
    calls: Sequence[str] = ()


def crash_test(
    workflow: Workflow[..., Any],
    stored: msgspec.Raw,
    answers: Entries = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Report:
    """Runs the workflow, then again with a crash at every point, and reports. `stored`: its input as JSON by name."""
    check_no_loop("a crash test")
    chosen = options or Options()
    allowed = _check(chosen)
    clock = SystemClock()
    began = clock.monotonic()
    chance: Random = vars(random)["_inst"]
    state = chance.getstate()
    try:
        job = _job(workflow, stored, answers, tuple(chosen.calls))
        setting = Setting("sqlite" if chosen.real else chosen.store, chosen.stubs, chosen.seed)
        player = play_really if chosen.real else play
        reference = player(job, setting, None, looks_at_code=True)
        _check_ended(reference)
        judge = Judge(reference, workflow.recovery, chosen.repeatable, allowed)
        writes = max((note.number for note in reference.notes if note.what == "write"), default=0)
        points, left_out = _points(writes, chosen) if judge.reference.status != "paused" else ([], 0)
        for place, point in enumerate(points, 1):
            crash = judge.add(player(job, setting, point))
            if progress is not None:
                progress(place, len(points), crash)
    finally:
        chance.setstate(state)
    return Report(
        workflow=workflow.name,
        store=setting.store,
        seed=chosen.seed,
        real=chosen.real,
        reference=judge.reference,
        writes=writes,
        virtual_s=reference.passed_s,
        real_s=clock.monotonic() - began,
        crashes=judge.crashes(),
        findings=judge.findings(),
        repeats=judge.repeats(),
        left_out=left_out,
        unused=tuple(job.script.unused([each for log in reference.logs.values() for each in asked_in(log)])),
    )


def _check(options: Options) -> list[Kind]:
    if options.store not in STORES:
        raise BadInput(f"there is no store {options.store!r} for crash tests; choose one of {', '.join(STORES)}")
    if options.max_crashes is not None and options.max_crashes < 1:
        raise BadInput(f"at least one crash is needed, not {options.max_crashes}")
    unknown = [kind for kind in options.allow if kind not in KINDS]
    if unknown:
        raise BadInput(f"there are no findings {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in options.allow]


def _job(workflow: Workflow[..., Any], stored: msgspec.Raw, answers: Entries, calls: tuple[str, ...]) -> Job:
    registry = Registry()
    found, queues = neighbours(workflow)
    for each in found:
        registry.add(each)
    workflow.arguments.decode(stored)
    return Job(workflow, stored, as_script(answers), registry, tuple(sorted(queues)), WRITES_MAX, calls)


def _check_ended(reference: Played) -> None:
    """The script must lead the run to its end, or there is nothing to compare with."""
    if reference.ended.startswith("refused: "):
        raise BadInput(reference.ended.removeprefix("refused: "))
    if reference.ended.startswith("stuck: "):
        waits = reference.ended.removeprefix("stuck: ")
        raise BadInput(
            f"without any crash the run waits for ever, for: {waits}; say in the script (answers) what comes, "
            f"such as {{on: '{waits}', answer: ...}} for a question or {{on: signal NAME, payload: ...}}"
        )


def _points(writes: int, options: Options) -> tuple[list[Point], int]:
    """Every point, or as many as were asked for, chosen by the seed."""
    phases = ("before", "after")
    every = [Point(number, phase) for number in range(1, writes + 1) for phase in phases]  # type: ignore[arg-type]
    chosen = every
    if options.max_crashes is not None and len(every) > options.max_crashes:
        picked = Random(options.seed).sample(range(len(every)), options.max_crashes)
        chosen = [every[place] for place in sorted(picked)]
    numbers = dict.fromkeys(point.number for point in chosen)
    twice = [Point(number, "twice") for number in numbers]
    cancels = [Point(number, "cancel") for number in numbers if options.cancels]
    return [*chosen, *twice, *cancels], len(every) - len(chosen)
