"""Planted: all mutants by name, and how many seeds are enough to find each."""

from __future__ import annotations

from simulator.branch_mutants import BRANCH_MUTANTS
from simulator.certainty_mutants import CERTAINTY_MUTANTS
from simulator.claim_mutants import CLAIM_MUTANTS
from simulator.engine_mutants import ENGINE_MUTANTS
from simulator.family_mutants import FAMILY_MUTANTS
from simulator.graph_mutants import GRAPH_MUTANTS
from simulator.holder_mutants import HOLDER_MUTANTS
from simulator.inbox_mutants import INBOX_MUTANTS
from simulator.mutants import Mutant
from simulator.saga_mutants import SAGA_MUTANTS
from simulator.scope_mutants import SCOPE_MUTANTS
from simulator.store_mutants import STORE_MUTANTS
from simulator.time_mutants import TIME_MUTANTS

_ALL = (
    *STORE_MUTANTS,
    *SCOPE_MUTANTS,
    *INBOX_MUTANTS,
    *ENGINE_MUTANTS,
    *BRANCH_MUTANTS,
    *FAMILY_MUTANTS,
    *TIME_MUTANTS,
    *HOLDER_MUTANTS,
    *CERTAINTY_MUTANTS,
    *SAGA_MUTANTS,
    *CLAIM_MUTANTS,
    *GRAPH_MUTANTS,
)
MUTANTS: dict[str, type[Mutant]] = {each.name: each for each in _ALL}
SEEDS_ENOUGH: dict[str, int] = {name: mutant.enough for name, mutant in MUTANTS.items()}
