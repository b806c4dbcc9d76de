"""Type checkers see what users write: right calls have their types, wrong ones are refused, each at its line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CODE = HERE / "user_code.py"
PYRIGHT = Path(sys.prefix) / "node" / "node_modules" / ".bin" / "pyright"


def expected() -> set[int]:
    return {number for number, line in enumerate(CODE.read_text().splitlines(), 1) if line.endswith("# E")}


def test_there_is_something_to_refuse() -> None:
    assert len(expected()) > 20


def test_mypy_agrees_with_the_marks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", str(CODE)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found: dict[int, str] = {}
    for name, line, text in re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        assert Path(name).name == CODE.name, f"not in the user's code: {name}: {text}"
        found.setdefault(int(line), text)
    _compare(found, done.stdout + done.stderr)


@pytest.mark.skipif(
    not PYRIGHT.exists() or shutil.which("node") is None,
    reason="this machine has no npm, so `make venv` got no pyright",
)
def test_pyright_agrees_with_the_marks(tmp_path: Path) -> None:
    copy = tmp_path / CODE.name
    copy.write_text(CODE.read_text())
    done = subprocess.run(
        [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, str(copy)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    report = json.loads(done.stdout)
    found = {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }
    _compare(found, done.stdout)


def _compare(found: dict[int, str], report: str) -> None:
    missed, surprising = expected() - set(found), {line: found[line] for line in found.keys() - expected()}
    lines = CODE.read_text().splitlines()
    assert not missed, (
        f"accepted, though wrong: {[lines[line - 1].strip() for line in sorted(missed)]}\n{report[:3000]}"
    )
    assert not surprising, f"refused, though right: {surprising}"
