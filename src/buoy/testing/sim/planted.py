"""Planted: all mutants by name, and how many seeds are enough to find each."""

from __future__ import annotations

from buoy.testing.sim.engine_mutants import ENGINE_MUTANTS
from buoy.testing.sim.inbox_mutants import INBOX_MUTANTS
from buoy.testing.sim.mutants import Mutant
from buoy.testing.sim.store_mutants import STORE_MUTANTS

MUTANTS: dict[str, type[Mutant]] = {each.name: each for each in (*STORE_MUTANTS, *INBOX_MUTANTS, *ENGINE_MUTANTS)}
SEEDS_ENOUGH: dict[str, int] = {name: mutant.enough for name, mutant in MUTANTS.items()}
