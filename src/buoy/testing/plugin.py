"""The pytest plugin: fixtures for tests of workflows. Installed with Buoy; nothing has to be configured.

    def test_checkout_survives_every_crash(crashtest):
        crashtest(checkout, {"order": order}, answers=[{"on": "Ship it?", "answer": True}])

Absent on purpose: hooks. It changes nothing about how tests are collected or run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from buoy.engine.authoring.definitions import Workflow
    from buoy.testing.crashtest import Report
    from buoy.testing.local import LocalApp
    from buoy.testing.script import Entries
    from buoy.testing.skipping import SkippingClock


class CrashTest(Protocol):
    """What the fixture `crashtest` is."""

    def __call__(
        self,
        workflow: Workflow[..., Any],
        input: Mapping[str, Any] | None = None,
        answers: Entries = None,
        **options: Any,
    ) -> Report: ...


@pytest.fixture
def buoy_clock() -> SkippingClock:
    """The clock of `buoy_app`: it skips the time while every task waits, and can be moved by hand."""
    from buoy.testing.skipping import SkippingClock

    return SkippingClock()


@pytest.fixture
def buoy_app(buoy_clock: SkippingClock) -> LocalApp:
    """Workflows in a plain test: `buoy_app.run(checkout, order)`, on a store in memory and with skipped time."""
    from buoy.testing.local import LocalApp

    return LocalApp(buoy_clock)


@pytest.fixture
def crashtest() -> CrashTest:
    """Crashes a workflow before and after everything that it writes, and fails, in plain words, on any finding.

    Options: store, stubs, repeatable, allow, max_crashes, seed, cancels, fresh, real, calls; see
    `buoy.testing.crashtest.Options`. With `real` the processes import the workflow's module again: monkeypatches of
    this test do not reach them, and steps without a stub do what they do in production.
    """

    def test(
        workflow: Workflow[..., Any], input: Mapping[str, Any] | None = None, answers: Entries = None, **options: Any
    ) -> Report:
        from buoy.testing.crashtest import Options, crash_test

        stored = workflow.arguments.encode((), dict(input or {}))
        report = crash_test(workflow, stored, answers, Options(**options))
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report

    return test
