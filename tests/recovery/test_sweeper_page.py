"""The page about the sweeper is true: its Python runs as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.patience import PATIENCE_S

PAGE = (Path(__file__).parents[2] / "docs" / "sweeper.md").read_text()
BEFORE = """
import asyncio
from types import SimpleNamespace

import buoy


class jobs:
    submitted = []

    @staticmethod
    async def get(key):
        return SimpleNamespace(state="ended")

    @staticmethod
    async def submit(command, key):
        jobs.submitted.append((command, key))


@buoy.workflow
async def checkout():
    return 1


async def main():
    async with buoy.connect("sqlite:///runs.db") as client:
        await client.start_as("order-7", checkout)
"""
AFTER = """
    await buoy.scan("sqlite:///runs.db", stale_after=0, report=requeue, task_checker=alive)
    ((command, key),) = jobs.submitted
    assert key.startswith("order-7:orchestrate:1:"), key


asyncio.run(main())
"""


def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    script = BEFORE + textwrap.indent("\n".join(blocks), "    ") + AFTER
    (tmp_path / "page.py").write_text(script)
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
