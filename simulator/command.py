"""The command line of the simulator.

    python -m simulator --seeds 1000            plays a thousand seeds
    python -m simulator --time 8h --jobs 2      plays seeds for so long, and continues there the next time
    python -m simulator --seed 17 --trace       plays one, and tells the whole story
    python -m simulator --store postgres --seeds 5    plays them on a real server that is started for it
    python -m simulator --seed 17 --shrink      leaves out of it what does not matter
    python -m simulator --mutants               plants each bug, and says which seed noticed it

Exit code: 0 every promise was kept (every mutant was found that is known to show), 1 a promise was broken (such a
mutant was missed).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from buoy.core.durations import seconds
from buoy.errors import BadInput
from simulator.endurance import endure, quiet
from simulator.hunt import find_mutant, noticed
from simulator.near import UNSHOWN
from simulator.planted import MUTANTS
from simulator.seed import Verdict, run_seed
from simulator.shrink import short_story, shrink
from simulator.totals import Totals

STORES = ("objects", "sqlite")
_SHOWN_MAX = 3
STATE = Path(".buoy-sim/next")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    quiet()
    stores = STORES if options.store == "both" else (options.store,)
    if options.mutants:
        return _all_mutants(stores, options.start, as_json=options.json)
    if options.seed is not None:
        return _one(options, stores)
    if options.time is not None:
        return _long(options, stores)
    first = 1 if options.start is None else options.start
    seeds = range(first, first + options.seeds)
    return _many(seeds, stores, options.mutant, shortens=not options.no_shrink, as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simulator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to play (200)")
    parser.add_argument("--time", metavar="SPAN", type=_span, help="play seeds for so long: 8h, 30m")
    parser.add_argument("--jobs", type=_positive, default=1, help="with --time: in so many processes (1)")
    parser.add_argument(
        "--state", type=Path, default=STATE, help=f"with --time: the file that names the next seed ({STATE})"
    )
    parser.add_argument("--start", type=int, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="play only this seed")
    parser.add_argument("--only", metavar="NAMES", help="with --seed: leave out all but these parts of it")
    parser.add_argument("--narrow", action="store_true", help="with --seed: without what came to plans last")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell the whole story")
    parser.add_argument("--shrink", action="store_true", help="with --seed: shorten the story of a broken promise")
    parser.add_argument("--no-shrink", action="store_true", help="do not shorten the first story of a broken promise")
    parser.add_argument(
        "--store", choices=(*STORES, "postgres", "both"), default="both", help="on which store (both, in turn)"
    )
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="none", help="plant this bug")
    parser.add_argument("--mutants", action="store_true", help="plant each bug, and say in which seed it was found")
    parser.add_argument("--json", action="store_true", help="give the totals as JSON")
    return parser


def _span(text: str) -> float:
    try:
        return seconds(text, "--time")
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"it must be a number above 0: {text!r}")
    return int(text)


def _long(options: argparse.Namespace, stores: tuple[str, ...]) -> int:
    def tell(verdict: Verdict) -> None:
        if verdict.violations and not options.json:
            _verdict(verdict)
            sys.stdout.flush()

    found = endure(options.time, options.jobs, options.state, stores, tell, options.start)
    print(msgspec.json.encode(found).decode() if options.json else found.in_words(stores))
    return 1 if found.totals.broken else 0


def _one(options: argparse.Namespace, stores: tuple[str, ...]) -> int:
    only = None if options.only is None else tuple(each for each in options.only.split(",") if each != "nothing")
    broken = 0
    for store in stores:
        verdict = run_seed(
            options.seed, store, options.mutant, trace=options.trace, only=only, narrow=options.narrow
        )  # fmt: skip
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
    """A planted bug, and the seed that noticed it. `known`: no seed is known to show it on this store."""

    mutant: str
    store: str
    seed: int | None
    rule: str | None
    known: str | None


def _all_mutants(stores: tuple[str, ...], start: int | None, *, as_json: bool) -> int:
    rows: list[_Found] = []
    for mutant, planted in MUTANTS.items():
        for store in (each for each in stores if each in planted.stores):
            found = find_mutant(mutant, store, start)
            known = UNSHOWN.get(mutant, {}).get(store)
            row = _Found(mutant, store, None, None, known)
            if found is not None:
                row = _Found(mutant, store, found.seed, noticed(found)[0], known)
            rows.append(row)
            if not as_json:
                number = "NOT FOUND" if row.seed is None else f"seed {row.seed}"
                print(f"{mutant:<26} {store:<8} {number:>9}  {row.rule or known or ''}", flush=True)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        missed = sum(row.seed is None for row in rows)
        expected = sum(row.seed is None and row.known is not None for row in rows)
        rest = f"; {expected} that no seed is known to show" if expected else ""
        found_in = f"{len(rows) - missed} of {len(rows)} found"
        print(f"{len(MUTANTS)} planted bugs on {' and '.join(stores)}: {found_in}{rest}")
    return 1 if any(row.seed is None and row.known is None for row in rows) else 0


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
