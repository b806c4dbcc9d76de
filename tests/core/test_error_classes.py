"""Errors in, classes out."""

from __future__ import annotations

from typing import Any

import pytest

from buoy.core.diagnosis.error_classes import CLASS_BOUNDS, CLASSES, classify
from buoy.core.log.events import ErrorInfo


def error(type: str = "Odd", message: str = "", **more: Any) -> ErrorInfo:
    return ErrorInfo(type=type, message=message, **more)


@pytest.mark.parametrize(("given", "expected"), [
    (error("TimeoutError"), "transient"),
    (error("httpx.ConnectTimeout"), "transient"),
    (error("ValueError"), "permanent"),
    (error("MemoryError"), "resource"),
    (error("ModuleNotFoundError"), "misconfiguration"),
    (error("Cancelled"), "cancelled"),
    (error("Odd"), "unknown"),
    (error("Odd", retryable=False), "permanent"),
    (error("TimeoutError", kind="permanent"), "permanent"),
    (error("Odd", kind="nonsense"), "unknown"),
    (error("ExitCode", facts={"exit_code": 137}), "resource"),
    (error("Killed", facts={"exit_code": None, "signal": "SIGKILL"}), "resource"),
    (error("Killed", facts={"signal": 9}), "resource"),
    (error("Killed", facts={"signal": "SIGTERM"}), "transient"),
    (error("Killed", facts={"signal": "SIGSEGV"}), "unknown"),
    (error("ExitCode", facts={"exit_code": 1, "out_of_memory": True}), "resource"),
    (error("ExitCode", facts={"exit_code": 127}), "misconfiguration"),
    (error("ExitCode", facts={"exit_code": 75}), "transient"),
    (error("ExitCode", facts={"exit_code": 65}), "permanent"),
    (error("ExitCode", facts={"exit_code": 1}), "unknown"),
    (error("ExitCode", facts={"exit_code": True}), "unknown"),
])  # fmt: skip
def test_errors_have_classes(given: ErrorInfo, expected: str) -> None:
    assert classify(given) == expected


def test_a_recorded_word_that_is_no_class_counts_for_nothing() -> None:
    assert classify(error("ValueError", kind="whatever")) == "permanent"
    assert classify(error("ValueError", kind="transient")) == "transient"


def test_only_what_may_succeed_is_tried_again() -> None:
    assert set(CLASS_BOUNDS) == {"transient", "resource"}
    assert set(CLASS_BOUNDS) < set(CLASSES)
