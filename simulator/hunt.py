"""Hunt: looks for the seed that shows a planted bug. It plays narrow plans, which are short (see `widening`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from simulator.near import NEAR
from simulator.planted import MUTANTS
from simulator.seed import Verdict, run_seed


def find_mutant(mutant: str, store: str, start: int | None = None) -> Verdict | None:
    """The first verdict that notices a planted bug, within the number of seeds that are enough for it.

    Without a start, the seed that is known to show it comes first: the others are played only if it does not any more.
    """
    for seed in _seeds(mutant, store, start):
        verdict = run_seed(seed, store, mutant, narrow=True)
        if noticed(verdict) and _keeps_its_promises(seed, store):
            return verdict
    return None


def _seeds(mutant: str, store: str, start: int | None) -> Iterator[int]:
    near = None if start is not None else NEAR.get(mutant, {}).get(store)
    if near is not None:
        yield near
    first = 1 if start is None else start
    yield from (seed for seed in range(first, first + MUTANTS[mutant].enough) if seed != near)


@cache
def _keeps_its_promises(seed: int, store: str) -> bool:
    """Whether the seed breaks nothing without a planted bug. Many bugs are shown by the same few seeds."""
    return not run_seed(seed, store, narrow=True).violations


def noticed(verdict: Verdict) -> list[str]:
    """The rules that a planted bug broke, of those that must notice it."""
    wanted = MUTANTS[verdict.mutant].rules
    return [each.rule for each in verdict.violations if each.rule in wanted]
