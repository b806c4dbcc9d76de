"""How many requests each operation of the object layout makes: exact numbers, so that growth fails here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "requests.py"

# PUT, GET, LIST, DELETE. Who makes one of them smaller writes the smaller number here and in benchmarks/README.md.
WANTED = {
    "register a runner": (1, 1, 0, 0),
    "start by a client": (4, 1, 0, 0),
    "claim of one due run": (2, 4, 3, 1),
    "take it": (1, 1, 2, 0),
    "32 sequential steps": (32, 0, 0, 0),
    "the last step, and the end": (3, 0, 0, 2),
    "run of 50 quick steps, all in": (59, 6, 5, 3),
    "record of a run": (0, 1, 2, 0),
    "events(limit=1) of that run": (0, 1, 1, 0),
    "events() of that run": (0, 52, 1, 0),
    "start driven in the same process": (3, 1, 0, 0),
    "a step of more than 30 s": (1, 1, 0, 0),
    "signal sent": (3, 2, 3, 0),
    "owner reads it, and the run ends": (3, 2, 5, 3),
    "the next look for work": (0, 0, 2, 0),
    "a remote step": (13, 12, 12, 3),
    "takeover of 30 runs of a dead worker": (154, 154, 153, 3),
    "100 senders to one run at once": (300, 334, 300, 0),
    "list page of 60 runs": (0, 60, 34, 0),
    "counts, 30 ended, 30 waiting": (0, 40, 33, 0),
    "buoy status, 30 ended, 30 waiting": (0, 41, 39, 0),
    "a look at what moved": (0, 0, 4, 0),
    "idle worker, ten minutes": (21, 0, 86, 0),
    "5 idle workers, ten minutes": (103, 0, 430, 0),
    "start elsewhere, until a worker that was idle has it": (8, 7, 7, 1),
    "start elsewhere, until a worker that was busy has it": (8, 6, 9, 1),
    "whole sweep, 0 runners gone": (0, 1, 9, 0),
    "whole sweep, 20 runners gone": (0, 0, 9, 0),
    "whole sweep, 300 runners gone": (0, 0, 9, 0),
    "whole sweep, 30 waiting runs held": (0, 39, 52, 0),
    "look for orphans, 30 held": (0, 8, 13, 0),
    "whole sweep, 30 waiting runs parked": (0, 39, 29, 0),
    "look for orphans, 30 parked": (0, 8, 20, 0),
    "whole sweep, 1,000 parked, 1,000 finished, 100 runners gone": (0, 45, 37, 0),
    "whole sweep, 1,000 parked, 100,000 finished, 10,000 runners gone": (0, 61, 38, 2),
    "ps, 20 active of 100,000 and 10,000 runners gone": (0, 40, 5, 0),
    "ps --all, 20 active of 100,000 and 10,000 runners gone": (0, 41, 6, 0),
    "why --all, 20 active of 100,000 and 10,000 runners gone": (0, 40, 5, 0),
    "status, 20 active of 100,000 and 10,000 runners gone": (0, 50, 19, 0),
    "sweeper --dry-run, 20 active of 100,000 and 10,000 runners gone": (0, 28, 24, 0),
}

# A count of before that is smaller than any count of now.
GREW = """
import sys
sys.path.insert(0, {folder!r})
import requests
requests.BEFORE["take it"] = requests.Requests(1, 0, 2, 0)
sys.argv = ["requests.py", "--only", "life"]
sys.exit(requests.main())
"""

FOLDERS = """
from pathlib import Path
from buoy.stores.objects.buckets.folder import FolderBucket

async def make(name):
    return await FolderBucket.open(Path(__file__).parent / name, durable=False)
"""


def _counted(*arguments: str, folder: Path = ROOT) -> dict[str, tuple[int, ...]]:
    command = [sys.executable, str(SCRIPT), "--json", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: tuple(each["now"].values()) for name, each in json.loads(done.stdout).items()}


def test_every_operation_makes_exactly_so_many_requests() -> None:
    assert _counted() == WANTED


def test_an_idle_worker_makes_at_most_one_request_in_five_seconds_alone_and_among_five() -> None:
    ten_minutes_s = 600
    assert sum(WANTED["idle worker, ten minutes"]) <= 0.2 * ten_minutes_s
    assert sum(WANTED["5 idle workers, ten minutes"]) <= 5 * 0.2 * ten_minutes_s


def test_a_count_that_has_grown_is_named_and_fails_the_script() -> None:
    command = [sys.executable, "-c", GREW.format(folder=str(SCRIPT.parent))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert [line for line in done.stdout.splitlines() if "**grown**" in line] == [
        "| take it | 1 | 1 | 2 | 0 | 1 0 2 0 **grown** |"
    ]


def test_requests_of_another_bucket_are_counted_the_same(tmp_path: Path) -> None:
    (tmp_path / "folders.py").write_text(FOLDERS)
    found = _counted("--bucket", "folders:make", "--only", "signals", folder=tmp_path)
    assert found == {name: WANTED[name] for name in found}
    assert (tmp_path / "signals" / "workflow").is_dir(), "it was counted on the folder"
