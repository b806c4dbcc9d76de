"""ARCHITECTURE and README name what is there: the files and functions of the walks, the folders, the commands."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from buoy.cli.main import VERBS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "buoy"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
WALKS = PAGE[PAGE.index("## Four walks") : PAGE.index("## Invariants")]


def test_the_walks_name_files_and_the_functions_in_them() -> None:
    files = re.findall(r"`([a-z_/]+\.py)`", WALKS)
    assert len(files) > 20
    assert [each for each in files if not (SOURCE / each).exists()] == []
    for file, name in re.findall(r"`([a-z_/]+\.py)` `(\w+)`", WALKS):
        defined = {
            each.name
            for each in ast.walk(ast.parse((SOURCE / file).read_text()))
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        assert name in defined, f"{file} has no {name}"


def test_the_code_map_names_folders_that_are_there() -> None:
    rows = PAGE[PAGE.index("## Code map") : PAGE.index("## Four walks")]
    named = re.findall(r"^\| `([a-z_]+(?:/[a-z_]+)*)/`", rows, re.MULTILINE)
    assert len(named) > 20
    assert [each for each in named if not (SOURCE / each).is_dir() and not (ROOT / each).is_dir()] == []


def test_the_readme_names_every_command_once() -> None:
    table = (ROOT / "README.md").read_text().split("## The command\n")[1].split("Each has")[0]
    named = re.findall(r"`([a-z-]+)`", table)
    assert sorted(named) == sorted(VERBS)
