"""`buoy worker --processes`: real workers under a real parent; each of them is killed, stopped or made to crash."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .conftest import FLOWS, Buoy, Process, Spawn, until

RUNS = 12
AT_ONCE = 3


class Pool:
    """A parent with its workers, seen through its JSON lines and through /proc."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def told(self, what: str) -> list[dict[str, Any]]:
        # The last line may be under way. An error that ends a worker is a document of several lines.
        whole = self.process.out.read_text().rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith('{"')]
        return [each for each in lines if each["what"] == what]

    def ready(self, count: int) -> list[dict[str, Any]]:
        until(lambda: len(self.told("worker_ready")) >= count, self.process)
        return self.told("worker_ready")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send(number)
        return self.process.wait()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def pool(buoy: Buoy, spawn: Spawn) -> Any:
    def start(*words: str, processes: str = "2", files: tuple[str, ...] = (str(FLOWS),)) -> Pool:
        return Pool(spawn("worker", *files, "--processes", processes, "--json", *words))

    return start


def load(buoy: Buoy, *, count: int = 4, work_s: float = 0.2) -> None:
    given = json.dumps({"witness": str(buoy.witness), "count": count, "work_s": work_s})
    for number in range(RUNS):
        buoy("start", f"{FLOWS}:parts", "--input", given, "--id", f"load-{number}")


def statuses(buoy: Buoy) -> set[str]:
    return {each["document"]["status"] for each in buoy.json("ps", "--all")["runs"]}


def no_step_was_completed_twice(buoy: Buoy, count: int = 4) -> bool:
    """A body that ended just before the kill may run again, since its end was not recorded yet."""
    seen = Counter(buoy.seen())
    done = [seen[f"done {number}"] for number in range(count)]
    return min(done) >= RUNS and sum(done) <= RUNS * count + AT_ONCE


def test_a_killed_worker_is_started_again_and_its_runs_continue(buoy: Buoy, pool: Any) -> None:
    load(buoy)
    parent = pool("--concurrency", f"{AT_ONCE}")
    first = parent.ready(2)
    until(lambda: "begin 1" in buoy.seen(), parent.process)
    os.kill(first[0]["pid"], signal.SIGKILL)
    again = parent.ready(3)
    assert {each["process"] for each in again} == {1, 2}
    assert len({each["runner"] for each in again}) == 3
    (told,) = parent.told("worker_restarting")
    assert (told["process"], told["code"], told["crashes"]) == (first[0]["process"], -signal.SIGKILL, 1)
    until(lambda: statuses(buoy) == {"completed"}, parent.process)
    assert no_step_was_completed_twice(buoy)
    assert parent.stop() == 0
    assert parent.told("pool_ended")[0]["restarts"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_of_the_parent_makes_all_workers_give_their_runs_back(
    buoy: Buoy, pool: Any, number: signal.Signals
) -> None:
    load(buoy, work_s=0.4)
    parent = pool("--concurrency", "6")
    workers = parent.ready(2)
    until(lambda: len(buoy.seen()) > 6, parent.process)
    assert parent.stop(number) == 0
    assert not any(alive(each["pid"]) for each in workers)
    assert {each["signal"] for each in parent.told("stopped")} == {number.name}
    assert "running" not in statuses(buoy)
    buoy.drive()
    assert Counter(buoy.seen()) == {f"{word} {n}": RUNS for word in ("begin", "done") for n in range(4)}


def test_workers_of_a_killed_parent_stop_by_themselves_and_give_their_runs_back(buoy: Buoy, pool: Any) -> None:
    load(buoy, work_s=0.4)
    parent = pool("--concurrency", "6")
    workers = parent.ready(2)
    until(lambda: len(buoy.seen()) > 6, parent.process)
    parent.process.send(signal.SIGKILL)
    parent.process.wait()
    until(lambda: not any(alive(each["pid"]) for each in workers))
    assert {each["signal"] for each in parent.told("stopped")} == {"PARENT_ENDED"}
    assert "running" not in statuses(buoy)
    buoy.drive()
    assert Counter(buoy.seen()) == {f"{word} {n}": RUNS for word in ("begin", "done") for n in range(4)}


def test_a_worker_that_a_step_holds_ends_after_its_killed_parent(buoy: Buoy, pool: Any) -> None:
    buoy("start", f"{FLOWS}:hanging", "--arg", f"witness={buoy.witness}", "--id", "h1")
    parent = pool("--grace", "100ms", processes="1")
    (worker,) = parent.ready(1)
    until(lambda: "stuck" in buoy.seen(), parent.process)
    parent.process.send(signal.SIGKILL)
    until(lambda: not alive(worker["pid"]))
    assert buoy.json("show", "h1")["health"] == "dead"


def test_a_worker_that_crashes_at_its_start_is_started_ever_more_slowly(buoy: Buoy, pool: Any) -> None:
    broken = buoy.folder / "broken.py"
    broken.write_text("import os\nos._exit(7)\n")
    parent = pool(files=(str(broken),), processes="1")
    until(lambda: len(parent.told("worker_restarting")) >= 4, parent.process)
    told = parent.told("worker_restarting")
    assert [each["wait_s"] for each in told[:4]] == [0.5, 1.0, 2.0, 4.0]
    assert [each["crashes"] for each in told[:4]] == [1, 2, 3, 4]
    assert {each["code"] for each in told} == {7}
    # The pause is kept: the next worker begins no earlier than the parent said.
    begun = [each["at"] for each in parent.told("worker_spawned")]
    assert all(later - at["at"] >= 0.9 * at["wait_s"] for at, later in zip(told, begun[1:], strict=False))
    assert parent.stop() == 0


def test_what_one_worker_refuses_ends_the_pool_with_the_same_exit_code(buoy: Buoy, pool: Any) -> None:
    broken = buoy.folder / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    parent = pool(files=(str(broken),))
    assert parent.process.wait() == 2
    assert "nothing_of_that_name" in parent.process.output()
    assert parent.told("worker_restarting") == []


def test_workers_end_when_nothing_is_left_to_do(buoy: Buoy, pool: Any) -> None:
    load(buoy, count=2, work_s=0.0)
    parent = pool("--until-idle")
    assert parent.process.wait() == 0
    assert statuses(buoy) == {"completed"}
    assert no_step_was_completed_twice(buoy, 2)


def test_a_second_signal_ends_all_workers_at_once(buoy: Buoy, pool: Any) -> None:
    buoy("start", f"{FLOWS}:hanging", "--arg", f"witness={buoy.witness}", "--id", "h1")
    parent = pool("--grace", "1h")
    workers = parent.ready(2)
    until(lambda: "stuck" in buoy.seen(), parent.process)
    parent.process.send(signal.SIGTERM)
    until(lambda: parent.told("stopping"), parent.process)
    assert parent.stop() == 143
    assert not any(alive(each["pid"]) for each in workers)
    assert buoy.json("show", "h1")["health"] == "dead"


def test_a_signal_to_parent_and_workers_together_is_one_stop(buoy: Buoy, pool: Any) -> None:
    """As a service manager does that signals all processes of a service."""
    load(buoy, work_s=0.4)
    parent = pool("--concurrency", "6")
    workers = parent.ready(2)
    until(lambda: len(buoy.seen()) > 6, parent.process)
    for pid in (parent.process.popen.pid, *(each["pid"] for each in workers)):
        os.kill(pid, signal.SIGTERM)
    assert parent.process.wait() == 0
    assert "running" not in statuses(buoy)


def test_each_line_of_text_names_its_worker(buoy: Buoy, spawn: Spawn) -> None:
    parent = spawn("worker", str(FLOWS), "--processes", "2")
    until(lambda: parent.out.read_text().count("is at work as runner-") == 2, parent)
    parent.send(signal.SIGTERM)
    assert parent.wait() == 0
    lines = parent.out.read_text().splitlines()
    for number in (1, 2):
        assert sum(f"[{number}] worker runner-" in line for line in lines) == 1
    assert "all workers have ended; 0 restarts, exit code 0" in lines[-1]


@pytest.mark.parametrize("given", ["0", "-1", "many", "257", "1.5"])
def test_a_wrong_number_of_processes_is_refused(buoy: Buoy, given: str) -> None:
    assert "write 1 to 256, or auto" in buoy("worker", str(FLOWS), f"--processes={given}", code=2).stderr
