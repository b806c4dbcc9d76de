"""The command line of the simulator."""

from __future__ import annotations

import argparse
import logging
import sys

from buoy.testing.sim.mutants import MUTANTS, SEEDS_ENOUGH
from buoy.testing.sim.seed import Verdict, run_seed

STORES = ("objects", "sqlite")
_SHOWN_MAX = 3


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # What the engine logs is in the story, or concerns processes that are being dropped.
    logging.getLogger("buoy").addHandler(logging.NullHandler())
    stores = STORES if options.store == "both" else (options.store,)
    if options.mutants:
        return _all_mutants(stores, options.start)
    if options.seed is not None:
        return _one(options.seed, stores, options.mutant, trace=options.trace)
    return _many(range(options.start, options.start + options.seeds), stores, options.mutant)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m buoy.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to play (200)")
    parser.add_argument("--start", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="play only this seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell the whole story")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both", help="on which store (both, in turn)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="none", help="plant this bug")
    parser.add_argument("--mutants", action="store_true", help="plant each bug, and say in which seed it was found")
    return parser


def _one(seed: int, stores: tuple[str, ...], mutant: str, *, trace: bool) -> int:
    broken = 0
    for store in stores:
        verdict = run_seed(seed, store, mutant, trace=trace)
        _tell(verdict, whole=trace)
        broken += bool(verdict.violations)
    return 1 if broken else 0


def _many(seeds: range, stores: tuple[str, ...], mutant: str) -> int:
    """Every seed on one store; with several stores they take turns."""
    broken = runs = events = 0
    for seed in seeds:
        verdict = run_seed(seed, stores[seed % len(stores)], mutant)
        runs += verdict.runs
        events += verdict.events
        if verdict.violations:
            broken += 1
            if broken <= _SHOWN_MAX:
                _tell(verdict)
            else:
                print(f"seed {verdict.seed}: {verdict.violations[0].rule}: {verdict.violations[0].text}")
                print(f"    {verdict.command}")
            sys.stdout.flush()
    last = f"{broken} broke a promise" if broken else "every promise was kept"
    print(f"{len(seeds)} seeds on {' and '.join(stores)}: {runs:,} runs, {events:,} events; {last}")
    return 1 if broken else 0


def _all_mutants(stores: tuple[str, ...], start: int) -> int:
    missed = 0
    for store in stores:
        for mutant in MUTANTS:
            found = find_mutant(mutant, store, start)
            if found is None:
                missed += 1
                print(f"{mutant} on {store}: NOT FOUND in {SEEDS_ENOUGH[mutant]} seeds")
            else:
                number = found.seed - start + 1
                print(
                    f"{mutant} on {store}: found by seed {number} of {SEEDS_ENOUGH[mutant]}: {found.violations[0].text}"
                )
    return 1 if missed else 0


def find_mutant(mutant: str, store: str, start: int = 1) -> Verdict | None:
    """The first verdict that notices a planted bug, within the number of seeds that are enough for it."""
    for seed in range(start, start + SEEDS_ENOUGH[mutant]):
        verdict = run_seed(seed, store, mutant)
        if verdict.violations:
            return verdict
    return None


def _tell(verdict: Verdict, *, whole: bool = False) -> None:
    if verdict.violations or whole:
        print("\n".join(verdict.story))
    mutant = "" if verdict.mutant == "none" else f" with mutant {verdict.mutant}"
    said = f"seed {verdict.seed} on {verdict.store}{mutant}"
    measure = f"{verdict.runs} runs, {verdict.events} events, {verdict.virtual_s:.0f} s in {verdict.turns:,} turns"
    if not verdict.violations:
        print(f"{said}: every promise was kept ({measure})")
        return
    print(f"{said} BROKE A PROMISE ({measure})")
    for violation in verdict.violations:
        print(f"  {violation.rule}: {violation.text}")
    print(f"again: {verdict.command}\n")
