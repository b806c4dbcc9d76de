"""Pipes without a reader: commands end quietly with their own exit code, and runs continue."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

from .conftest import FLOWS, Buoy

CHATTY = """
import sys
import buoy

@buoy.step
async def say(n: int) -> int:
    print("step", n, flush=True)
    print("step", n, file=sys.stderr, flush=True)
    return n

@buoy.workflow
async def chatty() -> int:
    return sum([await say(n) for n in range(3)])
"""


def unread(buoy: Buoy, *words: str, both: bool = False) -> int:
    """The exit code of a command whose standard output has no reader. It must print no traceback."""
    store = [] if "--help" in words else ["--store", buoy.store]
    read, write = os.pipe()
    os.close(read)
    try:
        found = subprocess.run(
            [sys.executable, "-m", "buoy", *words, *store],
            stdout=write,
            stderr=write if both else subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(write)
    told = found.stderr or ""
    assert "Traceback" not in told and "BrokenPipe" not in told, told
    return found.returncode


@pytest.mark.parametrize("both", [False, True], ids=["output", "output and errors"])
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["lines", "json"])
@pytest.mark.parametrize("verb", ["run", "worker"])
def test_a_step_that_prints_outlives_its_reader(buoy: Buoy, verb: str, more: list[str], both: bool) -> None:
    flows = buoy.folder / "chatty.py"
    flows.write_text(CHATTY)
    if verb == "run":
        assert unread(buoy, "run", f"{flows}:chatty", "--id", "c1", *more, both=both) == 0
    else:
        buoy("start", f"{flows}:chatty", "--id", "c1")
        assert unread(buoy, "worker", str(flows), "--until-idle", *more, both=both) == 0
    assert buoy("result", "c1").stdout == "3\n"


@pytest.mark.parametrize("both", [False, True], ids=["output", "output and errors"])
@pytest.mark.parametrize(
    ("words", "code"),
    [("--help", 0), ("run --help", 0), ("ps --all", 0), ("show none", 2), ("show none --json", 2), ("show --odd", 2)],
)
def test_a_command_whose_output_has_no_reader_keeps_its_exit_code(
    buoy: Buoy, words: str, code: int, both: bool
) -> None:
    buoy("start", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--id", "p1")
    assert unread(buoy, *words.split(), both=both) == code
