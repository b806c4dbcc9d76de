"""Endurance: plays seeds for a given time in several processes, and continues the next time where it ended.

Invariant: the file names the lowest seed that is not judged yet. Whatever ends this process, no seed is left out.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from pathlib import Path

import msgspec

from buoy.errors import BadInput
from buoy.host.clock import SystemClock
from simulator.seed import Verdict, run_seed
from simulator.totals import Totals

# Seeds that are handed over before the first of them is judged, for each process.
_AHEAD = 2
_SAVE_S = 5.0

Verdicts = Callable[[Verdict], None]


class Endurance(msgspec.Struct):
    """What a long run amounts to."""

    totals: Totals
    first: int
    next: int
    spent_s: float

    def in_words(self, stores: tuple[str, ...]) -> str:
        crashes = self.totals.crashes
        rate = crashes / self.spent_s if self.spent_s else 0.0
        return "\n".join(
            (
                self.totals.in_words(self.totals.seeds, stores),
                f"seeds {self.first} to {self.next - 1} in {self.spent_s:,.0f} s: {crashes:,} crash points, "
                f"{rate:,.1f} per second; the next run begins at seed {self.next}",
            )
        )


def next_seed(file: Path) -> int:
    """Where the last long run ended; 1 if there was none."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return 1
    if not text.strip().isdigit():
        raise BadInput(f"{file} must hold the number of a seed: {text.strip()[:40]!r}; correct or remove it")
    return int(text)


def endure(
    seconds: float, jobs: int, file: Path, stores: tuple[str, ...], on_verdict: Verdicts, first: int | None = None
) -> Endurance:
    """Plays one seed after the other, each on one store, until the time is over. At least one seed is played."""
    begin = next_seed(file) if first is None else first
    found = Endurance(Totals(), begin, begin, 0.0)
    clock = SystemClock()
    began = saved = clock.monotonic()
    # Spawned, so that no seed begins with what another left in memory.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=quiet) as pool:
        for seed, verdict in _judged(pool, jobs, begin, stores, lambda: clock.monotonic() - began < seconds):
            found.totals.add(verdict)
            on_verdict(verdict)
            found.next = seed
            if clock.monotonic() - saved >= _SAVE_S:
                saved = clock.monotonic()
                _save(file, found.next)
    found.spent_s = clock.monotonic() - began
    _save(file, found.next)
    return found


def _judged(
    pool: ProcessPoolExecutor, jobs: int, begin: int, stores: tuple[str, ...], goes_on: Callable[[], bool]
) -> Iterator[tuple[int, Verdict]]:
    """Each verdict as it comes, with the lowest seed that is not judged by then."""
    seeds = count(begin)
    open_: dict[Future[bytes], int] = {}
    last = begin
    while True:
        while len(open_) < jobs * _AHEAD and (goes_on() or last == begin):
            last = next(seeds)
            open_[pool.submit(_play, last, stores[last % len(stores)])] = last
            last += 1
        if not open_:
            return
        for done in wait(open_, return_when=FIRST_COMPLETED).done:
            del open_[done]
            yield min(open_.values(), default=last), msgspec.json.decode(done.result(), type=Verdict)


def _play(seed: int, store: str) -> bytes:
    """In another process. A story that will not be shown stays there."""
    verdict = run_seed(seed, store)
    if not verdict.violations:
        verdict.story, verdict.parts = [], []
    return msgspec.json.encode(verdict)


def quiet() -> None:
    """What the engine logs is in the story, or concerns processes that are being dropped."""
    logging.getLogger("buoy").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore", RuntimeWarning)
    # Each seed ends with a collection, which need not look at what was there before the first.
    gc.collect()
    gc.freeze()


def _save(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.new")
    new.write_text(f"{seed}\n")
    new.replace(file)
