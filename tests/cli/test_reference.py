"""The documentation says what the commands say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from buoy.cli.main import VERBS, main
from buoy.cli.terminal.reference import reference

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_reference_is_the_help_of_every_command() -> None:
    assert DOCS.read_text() == reference(), "write it again: python -m buoy.cli.terminal.reference > docs/cli.md"


@pytest.mark.parametrize("name", list(VERBS))
def test_every_help_has_an_example_and_its_exit_codes(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"], terminal_width=100)
    assert shown.exit_code == 0
    assert re.search(rf"Example:\n +buoy {name}", shown.output)
    assert "Exit code: 0" in shown.output
    assert "--store" in shown.output
    assert "--json" in shown.output


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "buoy", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("buoy, version")


def test_without_a_command_the_help_is_shown() -> None:
    shown = CliRunner().invoke(main, [])
    assert shown.exit_code == 2
    assert "Commands:" in shown.stderr
