"""Async tests as those of the engine, and a server with a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import pytest_pyfunc_call

from .served import Served

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.server.stop()
