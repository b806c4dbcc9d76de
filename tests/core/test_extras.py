"""The commands that install optional parts name exactly the packages of the extras."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from buoy.core import extras

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("name", ["postgres", "s3", "server"])
def test_a_command_installs_the_packages_of_its_extra(name: str) -> None:
    wanted = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"][name]
    assert shlex.split(getattr(extras, f"INSTALL_{name.upper()}")) == ["pip", "install", *wanted]
