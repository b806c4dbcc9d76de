"""The pytest plugin, in a pytest of its own, as users have it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

TESTS = """
import buoy

@buoy.step
async def charge(item: str) -> str:
    return item

@buoy.workflow
async def checkout(item: str) -> str:
    await buoy.sleep("3d")
    if not await buoy.ask("Ship it?", kind="confirm"):
        raise buoy.Cancelled("declined")
    return await charge(item)

ANSWERS = [{"on": "Ship it?", "answer": True, "after": "1d"}]

def test_a_checkout_takes_four_days(buoy_app, buoy_clock):
    assert buoy_app.run_with(ANSWERS, checkout, "lamp") == "lamp"
    assert buoy_clock.passed_s == 4 * 86400

def test_a_declared_step_may_repeat(crashtest):
    report = crashtest(checkout, {"item": "lamp"}, answers=ANSWERS, repeatable=["charge"])
    assert report.reference.result == "lamp"

def test_a_careless_step_is_found(crashtest):
    crashtest(checkout, {"item": "lamp"}, ANSWERS)
"""


def test_users_get_the_fixtures_and_a_message_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "test_checkout.py").write_text(TESTS)
    installed = any(entry.value == "buoy.testing.plugin" for entry in entry_points(group="pytest11"))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += [] if installed else ["-p", "buoy.testing.plugin"]
    done = subprocess.run([*words, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "1 failed" in done.stdout
    assert "A step acts more than once" in done.stdout
    assert "What to do: hand buoy.idempotency_key()" in done.stdout
    assert "Traceback" not in done.stdout


def test_the_plugin_is_announced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"buoy": "buoy.testing.plugin"}
