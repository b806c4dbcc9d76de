"""Access: the three ports that a look at a store needs.

A `Client` has them, and so has the inspector of the wiring, which loads without the engine.
"""

from __future__ import annotations

from typing import Protocol

from buoy.ports.host import Clock, Liveness
from buoy.ports.store import Store


class StoreAccess(Protocol):
    """An open store, with the clock and the proofs of death that belong to it."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def liveness(self) -> Liveness: ...
