"""Cases: one process struck at one store call, under one policy, on one store, and what became of its run.

    python -m tests.crash.cases --sample 100 --jobs 2     a hundred of all cases, chosen so that each kind is there
    python -m tests.crash.cases --all                     all of them: some thousands, and hours
    python -m tests.crash.cases --only 'sqlite hold zombie recovery: after commit 2'

A case is a store, a policy, a fault, a phase and a point. In the phase `engine` the first process of a run is struck;
in the phase `recovery` that one is killed in the middle of its steps, and the one that takes over is struck. Another
one finishes what is left.

    kill      SIGKILL
    term      SIGTERM: it must give its run back and end with 0
    stop      SIGSTOP; others on the same machine must leave its run alone; then SIGCONT
    zombie    SIGSTOP; a process on another machine takes over and finishes; then SIGCONT, and it must be fenced
    full      its disk (a small tmpfs in a name space of its own) is full to the last byte, for half a second
    readonly  the kernel refuses with EROFS whatever would change a file, until the process has been replaced

Exit code: 0 every promise was kept, 1 one was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import buoy
from buoy.core.ids import RunId
from buoy.engine.read_log import read_log
from tests.freeze import can_write
from tests.patience import LOOK_S
from tests.postgres_server import fresh_url

from .case_process import RUN, expected, fork, in_child
from .flows import POLICIES, WITNESS
from .gate import BALLAST, FAULTS, STORES, Gate, Point, can_refuse_writes, strike_of
from .harness import ROOT, Seen, read, whole_lines
from .verdict import Story, again, broken, in_witness_time, recoveries

PHASES = ("engine", "recovery")
# In the middle of its steps: one is completed, two have begun, and nothing of their work is recorded.
KILLED_AT = Point("commit", 3, "before")
# Of calls that are made again and again, the first ones; all commits of a short life.
NUMBERS_MAX = {"commit": 14}
DISK_BYTES = 4 * 1024 * 1024
SLEPT_S = 1.3
FULL_S = 0.5
PATIENCE_S = 1.0
# For what must come; only a process that hangs takes so long.
ENOUGH_S = 130.0


class Case(NamedTuple):
    store: str
    policy: str
    fault: str
    phase: str
    point: Point

    def __str__(self) -> str:
        return f"{self.store} {self.policy} {self.fault} {self.phase}: {self.point}"

    @classmethod
    def named(cls, text: str) -> Case:
        kind, _, place = text.partition(": ")
        store, policy, fault, phase = kind.split()
        side, call, number = place.split()
        return cls(store, policy, fault, phase, Point(call, int(number), side))


def url_of(store: str, disk: Path) -> str:
    """A new store of that kind. On PostgreSQL a new schema: the server is that of this process."""
    if store == "postgres":
        return fresh_url()
    return f"sqlite:///{disk}/runs.db" if store == "sqlite" else f"file://{disk}/store"


class CaseHarness:
    """The files and processes of one case."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.witness = folder / "witness"
        self.errors = folder / "errors"
        self.problems: list[str] = []
        self.asleep: dict[int, tuple[float, float]] = {}
        self._living: set[int] = set()
        os.environ[WITNESS] = str(self.witness)
        self.url = url_of(case.store, self.disk)

    def fork(self, gate: Gate | None = None, host: str | None = None) -> int:
        case = self.case
        pid = fork(self.url, case.policy, case.store, gate or Gate(), host=host, errors=self.errors)
        self._living.add(pid)
        return pid

    def wait(self, pid: int, limit_s: float, flags: int = 0) -> int | None:
        """How it ended (or stopped); None if it did not in time."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            found, status = os.waitpid(pid, os.WNOHANG | flags)
            if found:
                if not os.WIFSTOPPED(status):
                    self._living.discard(pid)
                return status
            time.sleep(LOOK_S)
        return None

    def wait_struck(self, pid: int, limit_s: float) -> bool:
        """Whether it came to its point; not, if it ended before."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if any(each.leaf == "struck" and each.pid == pid for each in self.seen()):
                return True
            if self._living.isdisjoint({pid}) or self._ended(pid):
                return False
            time.sleep(LOOK_S)
        return False

    def _ended(self, pid: int) -> bool:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def must_end(self, pid: int, who: str, limit_s: float = ENOUGH_S, *, code: int | None = 0) -> None:
        status = self.wait(pid, limit_s)
        if status is None:
            self.problems.append(f"{who} did not end within {limit_s:g} s")
            self.kill(pid)
        elif code is not None and status != code:
            self.problems.append(f"{who} ended with status {status}: {self.errors.read_text()[-600:]}")

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.wait(pid, ENOUGH_S)

    def seen(self) -> list[Seen]:
        said = self.witness.read_bytes() if self.witness.exists() else b""
        return [read(line.decode()) for line in whole_lines(said)]

    def close(self) -> None:
        for pid in list(self._living):
            self.kill(pid)


# ---- one case


def play(case: Case, folder: Path) -> dict[str, Any]:
    """What came of it; without `problems` if every promise was kept."""
    harness = CaseHarness(case, folder)
    mounted = case.fault == "full" and _mount(harness.disk)
    began = time.monotonic()
    try:
        if case.phase == "recovery":
            first = Gate(KILLED_AT, strike_of("kill", harness.disk))
            harness.must_end(harness.fork(first), "the first process", code=None)
        struck = _strike(harness)
        harness.must_end(harness.fork(), "the last process", 2 * ENOUGH_S)
        found = _judged(harness)
    finally:
        harness.close()
        if mounted:
            subprocess.run(["umount", "--lazy", str(harness.disk)], check=True)
    problems = [*harness.problems, *found.pop("problems")]
    refused = sum(each.leaf == "refused" or (each.leaf == "troubles" and each.key != "0") for each in harness.seen())
    return {
        "case": str(case), "struck": struck, "refused": refused, "problems": problems, **found,
        "took_s": round(time.monotonic() - began, 2),
    }  # fmt: skip


def _strike(harness: CaseHarness) -> bool:
    """Lets a process come to its point, and does what belongs to the fault. Whether it came there."""
    fault = harness.case.fault
    gate = Gate(harness.case.point, strike_of(fault, harness.disk))
    pid = harness.fork(gate, host="harbour" if fault == "zombie" else None)
    match fault:
        case "kill":
            harness.must_end(pid, "the struck process", code=None)
        case "term":
            harness.must_end(pid, "the struck process")
        case "stop" | "zombie":
            status = harness.wait(pid, ENOUGH_S, os.WUNTRACED)
            if status is not None and os.WIFSTOPPED(status):
                _asleep(harness, pid)
        case "full":
            if harness.wait_struck(pid, ENOUGH_S):
                time.sleep(FULL_S)
                (harness.disk / BALLAST).unlink()
            harness.must_end(pid, "the process whose disk was full")
        case "readonly":
            if harness.wait_struck(pid, ENOUGH_S):
                time.sleep(FULL_S)
                os.kill(pid, signal.SIGTERM)
            if harness.wait(pid, PATIENCE_S) is None:
                # As a supervisor does with one that cannot even say good-bye.
                harness.kill(pid)
    return any(each.leaf == "struck" and each.pid == pid for each in harness.seen())


def _asleep(harness: CaseHarness, pid: int) -> None:
    """Another process comes while this one stands still."""
    began = time.time()
    # If it is stopped in the middle of a write (by one of its other threads) it keeps the store's own lock. No process
    # can do anything until it wakes up, so this only checks that nothing goes wrong.
    zombie = harness.case.fault == "zombie" and can_write(harness.url)
    other = harness.fork(host="open-sea" if zombie else None)
    if zombie:
        harness.must_end(other, "the one on another machine")
    else:
        time.sleep(SLEPT_S)
    harness.asleep[pid] = (began, time.time())
    os.kill(pid, signal.SIGCONT)
    harness.must_end(pid, "the one that stood still", code=None)
    if not zombie:
        harness.must_end(other, "its neighbour")


def _judged(harness: CaseHarness) -> dict[str, Any]:
    """The verdict, found in a process of its own: one that was not there."""
    place = harness.folder / "verdict"

    def work() -> None:
        place.write_text(json.dumps(asyncio.run(_verdict(harness))))

    pid = in_child(work, harness.errors)
    os.waitpid(pid, 0)
    if not place.exists():
        return {"problems": [f"the store could not be read: {harness.errors.read_text()[-600:]}"]}
    found: dict[str, Any] = json.loads(place.read_text())
    return found


async def _verdict(harness: CaseHarness) -> dict[str, Any]:
    async with buoy.connect(harness.url) as client:
        log = await read_log(client.store, RunId(RUN))
        inbox = frozenset(each.number for each in await client.store.inbox(RunId(RUN)))
    seen = harness.seen()
    if harness.case.store == "postgres":
        log = in_witness_time(log, [each for each in seen if each.run == RUN])
    story = Story(RunId(RUN), harness.case.policy, expected(), log, inbox, seen, harness.asleep)
    return {
        "problems": broken(story),
        "again": again(story),
        "recoveries": dict(recoveries(log)),
        "events": len(log),
    }


# ---- all cases


def points_of(store: str, phase: str, folder: Path) -> list[Point]:
    """Before and after each call that a process makes, as one that nothing happens to makes them."""
    harness = CaseHarness(Case(store, "resume", "kill", phase, Point("nothing", 0, "before")), folder)
    if phase == "recovery":
        harness.must_end(harness.fork(Gate(KILLED_AT, strike_of("kill", harness.disk))), "the first process", code=None)
    pid = harness.fork()
    harness.must_end(pid, "the process that counts")
    counted = next(each for each in reversed(harness.seen()) if each.leaf == "calls" and each.pid == pid)
    found = []
    for item in counted.key.split(","):
        call, _, count = item.partition("=")
        for number in range(1, min(int(count), NUMBERS_MAX.get(call, 2)) + 1):
            found += [Point(call, number, "before"), Point(call, number, "after")]
    return found


def all_cases(folder: Path, faults: tuple[str, ...], stores: tuple[str, ...] = tuple(STORES)) -> list[Case]:
    found = []
    for store, phase in product(stores, PHASES):
        place = folder / f"points-{store}-{phase}"
        place.mkdir()
        points = points_of(store, phase, place)
        found += [Case(store, *rest, phase, point) for *rest, point in product(POLICIES, faults, points)]
    return found


def sample(cases: list[Case], number: int, seed: int) -> list[Case]:
    """So many of them, by chance; but first each fault under each policy in each phase, then each point."""
    left = sorted(cases)
    random.Random(seed).shuffle(left)
    chosen: list[Case] = []
    for shows in (lambda case: case[:4], lambda case: (case.store, case.phase, case.point)):
        known: set[object] = {shows(case) for case in chosen}
        rest = []
        for case in left:
            (rest if shows(case) in known else chosen).append(case)
            known.add(shows(case))
        left = rest
    return (chosen + left)[:number]


def possible_faults() -> tuple[str, ...]:
    """All, but for what this machine does not allow."""
    without = set() if _has_own_mounts() else {"full"}
    if not can_refuse_writes():
        without.add("readonly")
    return tuple(fault for fault in FAULTS if fault not in without)


def _mount(place: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    subprocess.run(command, check=True, capture_output=True)
    return True


def _has_own_mounts() -> bool:
    with tempfile.TemporaryDirectory() as place:
        try:
            _mount(Path(place))
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", "--lazy", place], check=True)
    return True


# ---- the command


def main() -> int:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="buoy-cases-", dir=options.folder))
    try:
        if options.share is not None:
            return _share(options, folder)
        results = list(_shares(options))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    bad = [each for each in results if each["problems"]]
    if options.json:
        print(json.dumps(results))
    else:
        for each in bad:
            print(each["case"], *each["problems"], sep="\n    ")
        print(f"{len(results)} cases, {sum(each['struck'] for each in results)} struck, {len(bad)} broke a promise")
    return 1 if bad else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.cases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=100, help="how many cases (100)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument("--all", action="store_true", help="every case")
    parser.add_argument("--only", metavar="CASE", help="one case, as it is named in a report")
    parser.add_argument("--faults", default=",".join(FAULTS), help="only these, with commas between")
    parser.add_argument("--stores", default=",".join(STORES), help="on these; 'postgres' starts a server")
    parser.add_argument("--jobs", type=int, default=2, help="how many at the same time (2)")
    parser.add_argument("--json", action="store_true", help="all results as JSON")
    parser.add_argument("--folder", help="where the stores are made; a real disk")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def _shares(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each job is a process in a name space of mounts of its own, if the kernel allows that; no rights are needed."""
    arguments = [each for each in sys.argv[1:] if each != "--json"]
    command = [sys.executable, "-m", "tests.crash.cases", *arguments]
    # A server of PostgreSQL runs as another user, which a name space does not know.
    apart = "postgres" not in (options.only or options.stores)
    if apart and subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode == 0:
        command = ["unshare", "-Urm", *command]
    jobs = [
        subprocess.Popen([*command, "--share", str(number)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(1 if options.only else options.jobs)
    ]
    for job in jobs:
        out, _ = job.communicate()
        if job.returncode:
            raise SystemExit(f"a job ended with {job.returncode}")
        yield from (json.loads(line) for line in out.splitlines())


def _share(options: argparse.Namespace, folder: Path) -> int:
    if options.only:
        chosen = [Case.named(options.only)]
    else:
        faults = tuple(each for each in possible_faults() if each in options.faults.split(","))
        cases = all_cases(folder, faults, tuple(options.stores.split(",")))
        chosen = cases if options.all else sample(cases, options.sample, options.seed)
        chosen = chosen[options.share :: options.jobs]
    for number, case in enumerate(chosen):
        place = folder / f"case-{number}"
        place.mkdir()
        print(json.dumps(play(case, place)), flush=True)
        if not options.only:
            shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
