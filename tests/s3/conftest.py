"""One S3 server for all tests of a session, each test with a prefix of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from .seaweed import Seaweed, credentials, seaweed

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    with seaweed(tmp_path_factory.mktemp("seaweed")) as running:
        yield running


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials come from the environment, as a user's do."""
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def prefix() -> str:
    return f"place-{next(_NUMBERS)}"
