"""Output without a reader or without room: commands keep their form and exit code, and runs continue."""

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


def full(buoy: Buoy, *words: str, both: bool = False) -> tuple[int, str]:
    """The exit code of a command whose standard output goes to a full disk, and what it said on standard error."""
    with open("/dev/full", "w") as disk:
        found = subprocess.run(
            [sys.executable, "-m", "buoy", *words, *([] if "--help" in words else ["--store", buoy.store])],
            stdout=disk,
            stderr=disk if both else subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    return found.returncode, found.stderr or ""


needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")


@needs_full
@pytest.mark.parametrize("words", ["--help", "ps --all", "ps --all --json", "events p1", "why p1", "spec-schema"])
def test_a_command_whose_output_finds_no_room_says_so_in_one_line(buoy: Buoy, words: str) -> None:
    buoy("start", f"{FLOWS}:parts", "--arg", f"witness={buoy.witness}", "--id", "p1")
    code, told = full(buoy, *words.split())
    assert (code, told.count("\n")) == (1, 1), told
    assert told.startswith("error: standard output cannot be written: No space left on device; ")


@needs_full
@pytest.mark.parametrize("both", [False, True], ids=["output", "output and errors"])
@pytest.mark.parametrize("verb", ["run", "worker"])
def test_a_step_that_prints_survives_a_full_disk_of_its_output(buoy: Buoy, verb: str, both: bool) -> None:
    flows = buoy.folder / "chatty.py"
    flows.write_text(CHATTY)
    if verb == "run":
        code, told = full(buoy, "run", f"{flows}:chatty", "--id", "c1", both=both)
    else:
        buoy("start", f"{flows}:chatty", "--id", "c1")
        code, told = full(buoy, "worker", str(flows), "--until-idle", both=both)
    assert code == 0 and "Traceback" not in told, told
    assert buoy("result", "c1").stdout == "3\n"
    if not both:
        assert told.count("standard output cannot be written: No space left on device") == 1, told


def test_output_that_had_no_room_is_counted_where_it_is_missing(buoy: Buoy) -> None:
    file = buoy.folder / "out.txt"
    code = """
import os, resource, signal, sys
from buoy.cli.terminal.outlets import outlive_readers
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
outlive_readers()
print("kept", flush=True)
most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5, most[1]))
print("lost", flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, most)
print("kept again", flush=True)
"""
    with file.open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, timeout=PATIENCE_S, check=True)
    assert file.read_text() == "kept\n[5 bytes of output are missing here: File too large]\nkept again\n"
