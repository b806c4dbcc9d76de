"""The page of other systems' names: every call and every command on it runs as it is written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from buoy.core.log.events import Body
from buoy.core.log.lifecycle import Status
from tests.patience import PATIENCE_S

from .conftest import Buoy

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text()
RIGHT = [line.split(" | ", 1)[1] for line in PAGE.splitlines() if line.startswith("| ") and " | " in line]
CODES = [code for cell in RIGHT for code in re.findall(r"`([^`]+)`", cell)]
CALLS = sorted({code for code in CODES if code.startswith("await ")})
COMMANDS = sorted({code for code in CODES if code.startswith("buoy ")})
# They run until they are stopped, or ask a cluster: their words are checked, and nothing is started.
STAYING = {
    "buoy runner --run nightly-7c2a --time-left 2h", "buoy sweeper --interval 300", "buoy sweeper --stale-after 600",
    "buoy slurm regenerate nightly-7c2a --account bio --submit", "buoy submit nightly.yaml --slurm --account bio",
    "buoy sync-status nightly-7c2a", "buoy workflows sync-status nightly-7c2a", "buoy watch nightly-7c2a --recover",
    "buoy worker flows.py --start-delay 2m",
}  # fmt: skip
NIGHTLY = "name: nightly\nsteps:\n  - {id: train, run: echo trained}\n"
FLOWS = """
import buoy


@buoy.workflow
async def checkout() -> bool:
    return bool(await buoy.ask("Ship it?", kind="confirm"))
"""
SCRIPT = """
import asyncio

import buoy
from flows import checkout

START_DELAY_S = 0


async def alive(task: buoy.TaskView) -> bool:
    return True


async def handle(found: buoy.Found) -> None:
    print("found", found.run_id)


async def main() -> None:
    async with buoy.open("sqlite:///buoy.db", workflows=[checkout]) as app:
        run = await app.start_as("order-7", checkout)
        asked = await run.question()
{calls}
{block}
        told = await resume("order-7")
        assert told == {{
            "status": 200, "recovered": None, "run": "awaiting_input", "questions": [asked.question_id]
        }}, told
        await app.pause("order-7")
        assert (await resume("order-7"))["status"] == 200
        assert (await run.document()).pause is None
        await after_start()


asyncio.run(main())
"""


@pytest.fixture
def place(buoy: Buoy) -> Buoy:
    (buoy.folder / "flows.py").write_text(FLOWS)
    (buoy.folder / "page.py").write_text(
        SCRIPT.format(
            calls=textwrap.indent("\n".join(CALLS), " " * 8),
            block=textwrap.indent(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], " " * 8),
        )
    )
    return buoy


def test_every_call_and_the_program_run(place: Buoy) -> None:
    assert len(CALLS) >= 10
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=place.folder, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr


def test_every_command_runs(place: Buoy) -> None:
    place("start", "flows.py:checkout", "--id", "order-7")
    (place.folder / "nightly.yaml").write_text(NIGHTLY)
    place("submit", "nightly.yaml", "--id", "nightly-7c2a")
    place("worker", "flows.py", "--until-idle")
    assert set(COMMANDS) >= STAYING and len(COMMANDS) >= 10
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        place(*words, *(["--help"] if command in STAYING else []))


def test_the_statuses_and_events_on_the_right_are_buoys() -> None:
    for there, here in (("created", "pending"), ("processing", "running"), ("error", "failed")):
        assert f"| status `{there}` | `{here}` |" in PAGE
        assert Status(here)
    known = {each.__struct_config__.tag for each in Body.__args__}
    named = {code for code in CODES if re.fullmatch(r"[a-z]+_(completed|requested|recovered|created)", code)}
    assert named and named <= known
