"""Planted: all mutants by name, and how many seeds are enough to find each."""

from __future__ import annotations

from buoy.testing.sim.branch_mutants import BRANCH_MUTANTS
from buoy.testing.sim.engine_mutants import ENGINE_MUTANTS
from buoy.testing.sim.family_mutants import FAMILY_MUTANTS
from buoy.testing.sim.holder_mutants import HOLDER_MUTANTS
from buoy.testing.sim.inbox_mutants import INBOX_MUTANTS
from buoy.testing.sim.mutants import Mutant
from buoy.testing.sim.scope_mutants import SCOPE_MUTANTS
from buoy.testing.sim.store_mutants import STORE_MUTANTS
from buoy.testing.sim.time_mutants import TIME_MUTANTS

_ALL = (
    *STORE_MUTANTS,
    *SCOPE_MUTANTS,
    *INBOX_MUTANTS,
    *ENGINE_MUTANTS,
    *BRANCH_MUTANTS,
    *FAMILY_MUTANTS,
    *TIME_MUTANTS,
    *HOLDER_MUTANTS,
)
MUTANTS: dict[str, type[Mutant]] = {each.name: each for each in _ALL}
SEEDS_ENOUGH: dict[str, int] = {name: mutant.enough for name, mutant in MUTANTS.items()}
