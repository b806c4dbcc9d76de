"""A pytest plugin: plants the bug that `BUOY_PLANT` names, before the first test. `pytest -p tests.sim.plant TEST`"""

from __future__ import annotations

import os
from typing import Any

from simulator.planted import MUTANTS


def pytest_configure() -> None:
    world: Any = None  # only a bug that needs no simulated world has a test of its own
    MUTANTS[os.environ["BUOY_PLANT"]]().install(world)
