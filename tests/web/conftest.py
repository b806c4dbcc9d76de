"""Async tests as those of the engine."""

from __future__ import annotations

from tests.engine.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
