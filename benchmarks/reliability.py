"""Reliability: all figures of docs/reliability.md, from one run.

    make reliability                                    about five minutes on two cores
    make reliability ARGS="--seeds 20000 --cases 2000 --seconds 1800"   a night

The simulator plays seeds, every planted bug is looked for, real processes are struck at named points, and a storm kills
workers under load. The page says what was done and what came of it; it has no date, no name and no path of a machine.

Exit code: 0 nothing was lost or repeated and every planted bug was found, 1 not so; the page is written in both cases.
"""

import argparse
import json
import logging
import multiprocessing
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from reliability_page import page
from simulator.command import STORES
from simulator.hunt import find_mutant, noticed
from simulator.near import NEAR, UNFOUND
from simulator.planted import MUTANTS, SEEDS_ENOUGH
from simulator.seed import run_seed

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reliability.md"
LOST = ("lost", "runs end")
REPEATED = ("executed again", "executed twice")


def main() -> int:
    args = _arguments()
    found: dict[str, Any] = {"command": _command(args), "jobs": args.jobs}
    parts = {
        "simulator": lambda: simulate(args.seeds, args.start, args.jobs),
        "mutants": lambda: mutants(args.jobs),
        "cases": lambda: _json("tests.crash.cases", "--sample", args.cases, "--jobs", args.jobs),
        "storm": lambda: _json("tests.crash.storm", "--seconds", args.seconds, "--workers", args.jobs),
    }
    for name, part in parts.items():
        if name in args.without:
            continue
        began = time.monotonic()
        found[name] = part()
        sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    if not args.without:
        args.out.write_text(page(found))
        sys.stderr.write(f"written to {args.out}\n")
    return 1 if _broken(found) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=300, help="seeds of the simulator (300)")
    parser.add_argument("--start", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--cases", type=int, default=140, help="real processes that are struck (140)")
    parser.add_argument("--seconds", type=int, default=40, help="how long the storm lasts (40)")
    parser.add_argument("--jobs", type=int, default=2, help="how much at the same time (2)")
    parser.add_argument("--without", action="append", default=[], help="leave out a part; then no page is written")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    parser.add_argument("--json", type=Path, help="a file for all figures as JSON")
    return parser.parse_args()


def _command(args: argparse.Namespace) -> str:
    """What makes this page again, with whatever was not left as it is."""
    said = [f"--{name} {getattr(args, name)}" for name in ("seeds", "start", "cases", "seconds", "jobs")]
    usual = {"--seeds 300", "--start 1", "--cases 140", "--seconds 40", "--jobs 2"}
    other = " ".join(each for each in said if each not in usual)
    return f'make reliability ARGS="{other}"' if other else "make reliability"


def _json(module: str, *options: object) -> Any:
    command = [sys.executable, "-m", module, *map(str, options), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(command[1:])} ended with {done.returncode}")
    return json.loads(done.stdout)


# ---- the simulator


def simulate(seeds: int, start: int, jobs: int) -> dict[str, Any]:
    """The totals over many seeds; they take turns on the stores."""
    totals: dict[str, Any] = {"seeds": seeds, "stores": list(STORES)}
    sums = dict.fromkeys(("runs", "events", "turns", "virtual_s"), 0)
    kinds: dict[str, Counter[str]] = {name: Counter() for name in ("faults", "acts", "recoveries")}
    rules: Counter[str] = Counter()
    broken, longest = [], None
    with _pool(jobs) as pool:
        for each in pool.imap_unordered(_seed, range(start, start + seeds), chunksize=4):
            for name in sums:
                sums[name] += each[name]
            for name, counter in kinds.items():
                counter.update(each[name])
            rules.update(each["rules"])
            if each["rules"]:
                broken.append(each["command"])
            if longest is None or each["turns"] > longest["turns"]:
                longest = {name: each[name] for name in ("command", "turns", "runs", "events", "virtual_s")}
    lost, repeated = (sum(_about(rules, words).values()) for words in (LOST, REPEATED))
    plain = {name: dict(counter.most_common()) for name, counter in kinds.items()}
    ends = {"lost": lost, "repeated": repeated, "rules": dict(rules), "broken": sorted(broken), "longest": longest}
    return {**totals, **sums, **plain, **ends}


def _about(rules: Counter[str], words: tuple[str, ...]) -> dict[str, int]:
    return {rule: count for rule, count in rules.items() if any(word in rule for word in words)}


def _seed(seed: int) -> dict[str, Any]:
    verdict = run_seed(seed, STORES[seed % len(STORES)])
    return {
        "command": verdict.command, "turns": verdict.turns, "runs": verdict.runs, "events": verdict.events,
        "virtual_s": verdict.virtual_s, "faults": verdict.faults, "acts": verdict.acts,
        "recoveries": verdict.recoveries, "rules": [each.rule for each in verdict.violations],
    }  # fmt: skip


# ---- planted bugs


def mutants(jobs: int) -> list[dict[str, Any]]:
    """Every planted bug on one store on which a seed is known to show it; the simulator's command plants them on all.

    Of some no seed is known. Each of those names a test, which `tests/sim/test_planted_in_tests.py` runs with the bug.
    """
    work = [(name, sorted(NEAR[name])[place % len(NEAR[name])]) for place, name in enumerate(sorted(NEAR))]
    tested = [{"mutant": name, "test": MUTANTS[name].test} for name in UNFOUND]
    with _pool(jobs) as pool:
        return sorted([*pool.imap_unordered(_mutant, work), *tested], key=lambda row: row["mutant"])


def _mutant(work: tuple[str, str]) -> dict[str, Any]:
    name, store = work
    verdict = find_mutant(name, store)
    found = {"seed": None, "rule": None}
    if verdict is not None:
        found = {"seed": verdict.seed, "rule": noticed(verdict)[0]}
    return {"mutant": name, "store": store, "enough": SEEDS_ENOUGH[name], **found}


def _pool(jobs: int) -> Any:
    return multiprocessing.get_context("spawn").Pool(jobs, initializer=_quiet)


def _quiet() -> None:
    """What the engine logs is in the story, or concerns processes that are being dropped."""
    logging.getLogger("buoy").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore", RuntimeWarning)


def _broken(found: dict[str, Any]) -> bool:
    return bool(
        found.get("simulator", {}).get("broken")
        or any("seed" in row and row["seed"] is None for row in found.get("mutants", ()))
        or any(each["problems"] for each in (*found.get("cases", ()), *found.get("storm", ())))
    )


if __name__ == "__main__":
    sys.exit(main())
