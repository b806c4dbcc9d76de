"""The crash test itself: the reference, then one scenario for every point, then the verdict."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import dropwhile
from random import Random
from typing import Any, Protocol

import msgspec

from buoy.engine.authoring.definitions import Workflow
from buoy.errors import BadInput
from buoy.host.clock import SystemClock
from buoy.testing.crashtest.elsewhere import Elsewhere, Rehearsal
from buoy.testing.crashtest.gate import COMPENSATION, Point
from buoy.testing.crashtest.judge import Judge
from buoy.testing.crashtest.names import check_stubs, meant_nothing, ran_in
from buoy.testing.crashtest.notes import Note
from buoy.testing.crashtest.process import Job, make_job
from buoy.testing.crashtest.real import RealPlayer
from buoy.testing.crashtest.report import KINDS, Crash, Kind, Report
from buoy.testing.crashtest.scenario import Played, Setting, play
from buoy.testing.local_host import STORES, check_no_loop
from buoy.testing.person import asked_in
from buoy.testing.script import Entries, as_script


class Player(Protocol):
    """Plays one scenario."""

    def __call__(self, point: Point | None, *, looks_at_code: bool = False) -> Played: ...


Progress = Callable[[int, int, Crash], None]

WRITES_MAX = 5_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may turn.

    `stubs`: canned results of steps, by name. `repeatable`: steps that may run twice, by name or pattern.
    `allow`: kinds of findings that are none here. `cancels`: whether the run is also cancelled at every point.
    `calls`: of a spec, the modules whose functions it may call. `store`: memory by default; with `real`, sqlite.
    `fresh`: whether the run is also replayed in fresh interpreters, where sets have another order.
    """

    store: str | None = None
    stubs: Mapping[str, Any] = {}
    repeatable: Sequence[str] = ()
    allow: Sequence[str] = ()
    max_crashes: int | None = None
    seed: int = 0
    cancels: bool = True
    real: bool = False
    calls: Sequence[str] = ()
    fresh: bool = True


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
    job = make_job(workflow, stored, as_script(answers), tuple(chosen.calls), WRITES_MAX)
    check_stubs(workflow, stored, chosen.stubs)
    setting = Setting(_store(chosen), chosen.stubs, chosen.seed)
    with _chance_kept(), _player(job, setting, chosen) as player, _rehearsal(job, setting, chosen) as rehearse:
        reference = player(None, looks_at_code=True)
        _check_ended(reference)
        judge = Judge(reference, workflow.recovery, chosen.repeatable, allowed)
        writes = max((note.number for note in reference.notes if note.what == "write"), default=0)
        points, left_out = _points(writes, chosen) if judge.reference.status != "paused" else ([], 0)
        ran = ran_in(reference.notes) | _crashed(judge, points, player, progress)
        elsewhere = rehearse(writes) if points and not judge.has_diverged else Elsewhere()
        if elsewhere.difference is not None:
            judge.add_elsewhere(elsewhere.difference)
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
        unused=(*_unused(job, reference), *meant_nothing(chosen.stubs, chosen.repeatable, ran)),
        notes=() if elsewhere.note is None else (elsewhere.note,),
    )


def _crashed(judge: Judge, points: Sequence[Point], player: Player, progress: Progress | None) -> set[str]:
    """Has every scenario played and judged. The steps that ran in any of them."""
    ran: set[str] = set()
    for place, played in _scenarios(points, player):
        ran |= ran_in(played.notes)
        crash = judge.add(played)
        if progress is not None:
            progress(place, len(points), crash)
    return ran


@contextmanager
def _player(job: Job, setting: Setting, options: Options) -> Iterator[Player]:
    if not options.real:
        yield partial(play, job, setting)
        return
    player = RealPlayer(job, setting)
    try:
        yield player.play
    finally:
        player.close()


@contextmanager
def _rehearsal(job: Job, setting: Setting, options: Options) -> Iterator[Callable[[int], Elsewhere]]:
    """Real processes have hash seeds of their own already."""
    if options.real or not options.fresh:
        yield lambda writes: Elsewhere()
        return
    rehearsal = Rehearsal(job, setting)
    try:
        yield rehearsal.play
    finally:
        rehearsal.close()


@contextmanager
def _chance_kept() -> Iterator[None]:
    """Restores the state of Python's own random generator afterwards."""
    chance: Random = vars(random)["_inst"]
    state = chance.getstate()
    try:
        yield
    finally:
        chance.setstate(state)


def _scenarios(points: Sequence[Point], play_at: Player) -> Iterator[tuple[int, Played]]:
    """Every point, with its place. A cancel that undid something comes again, with a crash in the midst of that."""
    for place, point in enumerate(points, 1):
        played = play_at(point)
        yield place, played
        if point.phase == "cancel" and _undoes(played.notes, point.number):
            yield place, play_at(Point(point.number, "undo"))


def _undoes(notes: Sequence[Note], number: int) -> bool:
    """Whether a compensation came to its end after that write."""
    later = dropwhile(lambda note: note.what != "write" or note.number <= number, notes)
    return any(note.what == "durable" and note.leaf.endswith(COMPENSATION) for note in later)


def _check(options: Options) -> list[Kind]:
    if _store(options) not in STORES:
        raise BadInput(f"there is no store {options.store!r} for crash tests; choose one of {', '.join(STORES)}")
    if options.real and options.store == "memory":
        raise BadInput("a store in memory dies with a real process; choose sqlite or folder, or leave real out")
    if options.max_crashes is not None and options.max_crashes < 1:
        raise BadInput(f"at least one crash is needed, not {options.max_crashes}")
    unknown = [kind for kind in options.allow if kind not in KINDS]
    if unknown:
        raise BadInput(f"there are no findings {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in options.allow]


def _store(options: Options) -> str:
    return options.store or ("sqlite" if options.real else "memory")


def _unused(job: Job, reference: Played) -> list[str]:
    return job.script.unused([each for log in reference.logs.values() for each in asked_in(log)])


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
