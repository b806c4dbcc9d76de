"""The command line of the simulator.

    python -m buoy.testing.sim --seeds 1000            plays a thousand seeds
    python -m buoy.testing.sim --seed 17 --trace       plays one, and tells the whole story
    python -m buoy.testing.sim --seed 17 --shrink      leaves out of it what does not matter
    python -m buoy.testing.sim --mutants               plants each bug, and says which seed noticed it

Exit code: 0 every promise was kept (every mutant was found), 1 a promise was broken (a mutant was missed).
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import warnings

import msgspec

from buoy.testing.sim.planted import MUTANTS, SEEDS_ENOUGH
from buoy.testing.sim.seed import Verdict, run_seed
from buoy.testing.sim.shrink import short_story, shrink
from buoy.testing.sim.totals import Totals

STORES = ("objects", "sqlite")
_SHOWN_MAX = 3


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # What the engine logs is in the story, or concerns processes that are being dropped.
    logging.getLogger("buoy").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore", RuntimeWarning)
    # Each seed ends with a collection, which need not look at what was there before the first.
    gc.collect()
    gc.freeze()
    stores = STORES if options.store == "both" else (options.store,)
    if options.mutants:
        return _all_mutants(stores, options.start, as_json=options.json)
    if options.seed is not None:
        return _one(options, stores)
    seeds = range(options.start, options.start + options.seeds)
    return _many(seeds, stores, options.mutant, shortens=not options.no_shrink, as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m buoy.testing.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to play (200)")
    parser.add_argument("--start", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="play only this seed")
    parser.add_argument("--only", metavar="NAMES", help="with --seed: leave out all but these parts of it")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell the whole story")
    parser.add_argument("--shrink", action="store_true", help="with --seed: shorten the story of a broken promise")
    parser.add_argument("--no-shrink", action="store_true", help="do not shorten the first story of a broken promise")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both", help="on which store (both, in turn)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="none", help="plant this bug")
    parser.add_argument("--mutants", action="store_true", help="plant each bug, and say in which seed it was found")
    parser.add_argument("--json", action="store_true", help="give the totals as JSON")
    return parser


def _one(options: argparse.Namespace, stores: tuple[str, ...]) -> int:
    only = None if options.only is None else tuple(each for each in options.only.split(",") if each != "nothing")
    broken = 0
    for store in stores:
        verdict = run_seed(options.seed, store, options.mutant, trace=options.trace, only=only)
        broken += bool(verdict.violations)
        if options.shrink and verdict.violations:
            _tell_short(verdict)
        else:
            _tell(verdict, whole=options.trace)
    return 1 if broken else 0


def _many(seeds: range, stores: tuple[str, ...], mutant: str, *, shortens: bool, as_json: bool) -> int:
    """Every seed on one store; with several stores they take turns."""
    totals = Totals()
    for seed in seeds:
        verdict = run_seed(seed, stores[seed % len(stores)], mutant)
        totals.add(verdict)
        if not verdict.violations or as_json:
            continue
        if totals.broken == 1 and shortens:
            _tell_short(verdict)
        elif totals.broken <= _SHOWN_MAX:
            _tell(verdict)
        else:
            print(f"seed {verdict.seed}: {verdict.violations[0].rule}: {verdict.violations[0].text}")
            print(f"    {verdict.command}")
        sys.stdout.flush()
    print(totals.as_json() if as_json else totals.in_words(len(seeds), stores))
    return 1 if totals.broken else 0


class _Found(msgspec.Struct):
    """A planted bug, and the seed that noticed it."""

    mutant: str
    store: str
    enough: int
    seeds: int | None
    rule: str | None


def _all_mutants(stores: tuple[str, ...], start: int, *, as_json: bool) -> int:
    rows: list[_Found] = []
    for mutant, planted in MUTANTS.items():
        for store in (each for each in stores if each in planted.stores):
            found = find_mutant(mutant, store, start)
            seeds = None if found is None else found.seed - start + 1
            rule = None if found is None else noticed(found)[0]
            rows.append(_Found(mutant, store, SEEDS_ENOUGH[mutant], seeds, rule))
            if not as_json:
                number = "NOT FOUND" if seeds is None else f"seed {seeds}"
                print(f"{mutant:<26} {store:<8} {number:>9} of {SEEDS_ENOUGH[mutant]:<4} {rule or ''}", flush=True)
    missed = sum(row.seeds is None for row in rows)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        print(f"{len(MUTANTS)} planted bugs on {' and '.join(stores)}: {len(rows) - missed} of {len(rows)} found")
    return 1 if missed else 0


def find_mutant(mutant: str, store: str, start: int = 1) -> Verdict | None:
    """The first verdict that notices a planted bug, within the number of seeds that are enough for it."""
    for seed in range(start, start + MUTANTS[mutant].enough):
        verdict = run_seed(seed, store, mutant)
        if noticed(verdict) and not run_seed(seed, store).violations:
            return verdict
    return None


def noticed(verdict: Verdict) -> list[str]:
    """The rules that a planted bug broke, of those that must notice it."""
    wanted = MUTANTS[verdict.mutant].rules
    return [each.rule for each in verdict.violations if each.rule in wanted]


def _tell_short(verdict: Verdict) -> None:
    """The story without what does not matter to it."""

    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:<40}", end="", file=sys.stderr, flush=True)

    short = shrink(verdict, say=say)
    print("\n".join(short_story(short)))
    _verdict(short)
    print(f"the whole story: {verdict.command}\n")


def _tell(verdict: Verdict, *, whole: bool = False) -> None:
    if verdict.violations or whole:
        print("\n".join(verdict.story))
    _verdict(verdict)


def _verdict(verdict: Verdict) -> None:
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
