"""Async tests without a plugin, each within a time limit; and stores of each kind to run them on."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.postgres_server import fresh_url

# Longer than any wait inside of a test, which then says for what it waited.
TEST_LIMIT_S = 240.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs `async def test_...` on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        async with asyncio.timeout(TEST_LIMIT_S):
            await pyfuncitem.obj(**given)

    asyncio.run(bounded())
    return True


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of the default kind, empty."""
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture(params=["sqlite", "file"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind that needs no server and has no clock of its own."""
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else f"file://{tmp_path}/folder"


@pytest.fixture(params=["sqlite", "file", "postgres"])
def every_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, and a store on a server with a clock of its own."""
    if request.param == "postgres":
        return fresh_url()
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else f"file://{tmp_path}/folder"
