"""The reference of the Python API is complete and true."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import buoy
from buoy.core import limits
from buoy.engine.authoring.attempt import Info
from tests.patience import PATIENCE_S

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("name", buoy.__all__)
def test_every_public_name_is_explained(name: str) -> None:
    assert re.search(rf"`(@)?buoy\.{name}[`(]", PAGE), f"docs/python.md does not explain buoy.{name}"


@pytest.mark.parametrize(
    "name", ["step", "workflow", "ask", "wait_signal", "open", "connect", "load_spec", "progress", "sweep", "reconcile"]
)
def test_every_parameter_is_named(name: str) -> None:
    for parameter in list(inspect.signature(getattr(buoy, name)).parameters)[1:]:
        assert re.search(rf"\b{parameter}\b", PAGE), f"docs/python.md does not name {parameter} of buoy.{name}"


@pytest.mark.parametrize(
    "kind", [buoy.RunnerOptions, Info, buoy.Swept, buoy.Reconciled, buoy.Scan, buoy.Found, buoy.TaskView]
)
def test_every_field_is_named(kind: type) -> None:
    for field in kind.__struct_fields__:  # type: ignore[attr-defined]
        assert f"`{field}`" in PAGE


@pytest.mark.parametrize("kind", [buoy.Client, buoy.Run])
def test_every_method_is_named(kind: type) -> None:
    # Of use to the command line only: the input as JSON, requests by name, the questions that have an answer.
    inner = {"start_stored", "request", "answered", "client"}
    for name in [each for each in vars(kind) if not each.startswith("_") and each not in inner]:
        assert re.search(rf"`{name}[`(]", PAGE), f"docs/python.md does not name {kind.__name__}.{name}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (limits.PAYLOAD_BYTES_MAX, "1 MiB"),
        (limits.MESSAGE_BYTES_MAX, "256 KiB"),
        (limits.QUESTION_BYTES_MAX, "256 KiB"),
        (limits.QUESTION_TITLE_CHARS_MAX, "1,000 characters"),
        (limits.ERROR_TEXT_CHARS_MAX, "4,000 characters"),
        (limits.NESTING_MAX, "200"),
        (limits.LOG_EVENTS_MAX, "200,000"),
        (limits.INBOX_UNREAD_MAX, "10,000"),
        (limits.RUN_ID_CHARS_MAX, "128 characters"),
        (limits.WAITING_RUNS_MAX, "2,000 each"),
        (limits.DRIVING_RUNS_MAX, "2,000 each"),
        (limits.RETRIES_MAX, "at most 1,000"),
    ],
)
def test_limits_are_those_of_the_code(value: int, text: str) -> None:
    number = int(re.sub(r"\D", "", text.split()[0] if text[0].isdigit() else text))
    unit = {"MiB": 1024 * 1024, "KiB": 1024}.get(text.split()[-1], 1)
    assert value == number * unit
    assert text in PAGE


def test_the_examples_run(tmp_path: Path) -> None:
    ask, outside = EXAMPLES
    check = """
async def main() -> None:
    async with buoy.open("sqlite:///ask.db", workflows=[deliver, plain]) as app:
        run = await app.start(plain)
        child = None
        while child is None:
            found = [each for each in (await app.runs()).runs if each.document.parent is not None]
            child = found[0].document.run_id if found else None
            await asyncio.sleep(0.05)
        asked = await app.get(child)
        assert (await asked.question()).question.kind == "form"
        await asked.answer({"town": "Rome"})
        assert await run.result() == "sent to Rome"


asyncio.run(main())
"""
    for name, text in (("ask.py", ask + check), ("outside.py", outside)):
        (tmp_path / name).write_text(text)
        done = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
    assert done.stdout == "hello ann\n"
