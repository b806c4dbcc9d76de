"""Options of the tests, and the settings of hypothesis for all of them.

Invariant: without options every run of the suite tries the same examples, so a failure repeats.
`--fuzz` draws new ones.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--many-rows", action="store_true", help="Fill tables with a million rows where tests count reads."
    )
    parser.addoption("--fuzz", action="store_true", help="Draw new examples for property tests, not the same as ever.")


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile(
        "suite",
        deadline=None,
        print_blob=True,
        derandomize=not config.getoption("--fuzz"),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("suite")
