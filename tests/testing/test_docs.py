"""The page for users is true: its examples run, and its tables are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import yaml

from buoy.testing import Script
from buoy.testing.crashtest.report import KINDS
from tests.patience import PATIENCE_S

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
GATEWAY = """
class gateway:
    @staticmethod
    async def charge(order: int, key: str) -> str:
        return f"receipt-{order}"
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_examples_run(tmp_path: Path) -> None:
    flow, crash, unit, alone = blocks("python")
    (tmp_path / "flows.py").write_text(GATEWAY + flow)
    (tmp_path / "test_flows.py").write_text(f"import buoy, pytest\n{crash}\n{unit}")
    (tmp_path / "alone.py").write_text(alone)
    (tmp_path / "answers.yaml").write_text(blocks("yaml")[0])
    installed = any(each.value == "buoy.testing.plugin" for each in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "buoy.testing.plugin"]
    for words in (
        ["alone.py"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_flows.py"],
        ["-m", "buoy", "crashtest", "flows.py:checkout", "--input", '{"order": 7}', "--answers", "answers.yaml"],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def test_the_script_on_the_page_is_one() -> None:
    entries = yaml.safe_load(blocks("yaml")[0].replace("- on:", '- "on":'))
    assert len(Script(entries)) == 3


def test_every_kind_of_finding_is_explained() -> None:
    assert all(f"`{kind}`" in PAGE for kind in KINDS)
