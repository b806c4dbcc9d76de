"""Options of the tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--many-rows", action="store_true", help="Fill tables with a million rows where tests count reads."
    )
