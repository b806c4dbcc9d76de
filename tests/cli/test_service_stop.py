"""A stop of a whole service reaches worker, guards and commands in any order: runs are given back, none fails."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import pytest

from .conftest import Buoy, Process, Spawn, until

PATIENT = (str(Path(__file__).with_name("patient_buoy.py")),)
ROLES = ("worker", "guard", "command")
ORDERS = list(itertools.permutations(ROLES))


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


def below(pid: int) -> list[int]:
    return [pid, *(each for child in children_of(pid) for each in below(child))]


class Service:
    """A worker in the middle of a command, with all the processes that belong to it."""

    def __init__(
        self, buoy: Buoy, spawn: Spawn, command: str = "", program: tuple[str, ...] = PATIENT, **step: object
    ) -> None:
        self._buoy = buoy
        loop = f"{command} touch begun; while [ ! -e go ]; do sleep 0.05; done; echo done >> done"
        more = "".join(f"    {name}: {value}\n" for name, value in step.items())
        (buoy.folder / "s.yaml").write_text(f"name: s\nsteps:\n  - id: a\n    run: |\n      {loop}\n{more}")
        buoy("start", "s.yaml", "--id", "r")
        self.worker: Process = spawn("worker", "--no-sweeper", program=program)
        until((buoy.folder / "begun").exists, self.worker)
        (guard,) = children_of(self.worker.popen.pid)
        (shell,) = children_of(guard)
        self.pids = {"worker": [self.worker.popen.pid], "guard": [guard], "command": below(shell)}

    def send(self, role: str, number: signal.Signals) -> None:
        # The loop of the command starts a new process every 50 ms: all that it has now.
        pids = below(self.pids[role][0]) if role == "command" else self.pids[role]
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # an earlier signal has ended it

    def everything_ended(self) -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in (*self.pids["guard"], *self.pids["command"]))

    def events(self) -> list[str]:
        return [each["body"]["type"] for each in self._buoy.json("events", "r")["events"]]

    def goes_on(self) -> None:
        """The next worker brings the run to its end, with the same attempt."""
        until(self.everything_ended)
        assert self._buoy.json("show", "r")["document"]["status"] in ("interrupted", "running")
        assert not {"step_failed", "retry_scheduled", "workflow_failed"} & set(self.events())
        (self._buoy.folder / "go").touch()
        self._buoy("worker", "--until-idle")
        assert self._buoy.json("show", "r")["document"]["status"] == "completed"
        assert self.events().count("step_started") == 1
        assert (self._buoy.folder / "done").read_text() == "done\n"


def stop(service: Service, order: tuple[str, ...], number: signal.Signals, apart_s: float) -> None:
    for place, role in enumerate(order):
        if place:
            time.sleep(apart_s)  # no wait for anything: the signals of a real stop come apart
        service.send(role, number)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_stop_of_the_whole_service_gives_the_run_back(buoy: Buoy, spawn: Spawn, order: tuple[str, ...]) -> None:
    service = Service(buoy, spawn)
    stop(service, order, signal.SIGTERM, 0.3)
    assert service.worker.wait() == 0
    assert service.events()[-1] == "interrupted"
    service.goes_on()


@pytest.mark.slow
@pytest.mark.parametrize("apart_s", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_however_far_the_signals_are_apart(buoy: Buoy, spawn: Spawn, order: tuple[str, ...], apart_s: float) -> None:
    service = Service(buoy, spawn, retries=1)
    stop(service, order, signal.SIGTERM, apart_s)
    assert service.worker.wait() == 0
    service.goes_on()


@pytest.mark.parametrize("trap", ["trap 'exit 1' TERM;", "trap 'exit 0' TERM;", "trap 'exit 143' TERM;"])
def test_a_command_that_ends_in_its_own_way_at_the_stop_is_given_back(buoy: Buoy, spawn: Spawn, trap: str) -> None:
    service = Service(buoy, spawn, trap)
    stop(service, ("worker", "guard", "command"), signal.SIGTERM, 0.0)
    assert service.worker.wait() == 0
    service.goes_on()


def test_a_stop_by_sigint_gives_the_run_back(buoy: Buoy, spawn: Spawn) -> None:
    service = Service(buoy, spawn)
    stop(service, ("command", "guard", "worker"), signal.SIGINT, 0.3)
    assert service.worker.wait() == 0
    service.goes_on()


@pytest.mark.parametrize("order", [("command", "guard", "worker"), ("guard", "command", "worker")], ids="-".join)
def test_a_kill_of_the_whole_service_after_the_grace_time_fails_no_run(
    buoy: Buoy, spawn: Spawn, order: tuple[str, ...]
) -> None:
    service = Service(buoy, spawn, "trap '' TERM;", supports_termination="true")
    stop(service, ROLES, signal.SIGTERM, 0.0)
    until(lambda: "stopping" in service.worker.output(), service.worker)
    stop(service, order, signal.SIGKILL, 0.2)
    service.worker.wait()
    service.goes_on()


def test_a_kill_of_the_whole_service_fails_no_run(buoy: Buoy, spawn: Spawn) -> None:
    service = Service(buoy, spawn)
    stop(service, ("guard", "command", "worker"), signal.SIGKILL, 0.1)
    service.worker.wait()
    service.goes_on()


def test_a_command_that_a_person_ends_fails_if_its_worker_stays(buoy: Buoy, spawn: Spawn) -> None:
    service = Service(buoy, spawn, program=("-m", "buoy"))
    service.send("command", signal.SIGTERM)
    until(lambda: "workflow_failed" in service.events(), service.worker)
    service.worker.send(signal.SIGTERM)
    assert service.worker.wait() == 0
    assert "ended by SIGTERM" in buoy("why", "r").stdout
