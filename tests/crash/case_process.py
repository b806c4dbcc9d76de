"""What the processes of a case do: they start the run if it is not there, drive it, and end when it has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

import buoy
from buoy.config import HOST_VARIABLE
from buoy.engine.client.client import Client
from buoy.engine.services.heartbeat import Heartbeat
from buoy.errors import Problem, WrongState
from buoy.recovery.failure_detector import FailureDetector
from buoy.stores.objects import store
from buoy.stores.objects.runners import fleet

from .flows import VOYAGES, WORKFLOWS, note, open_witness
from .gate import Gate

RUN = "run"
NUMBER = 7
LOOK_S = 0.02
REFUSED_S = 0.1
GRACE_S = 3.0
DRIVE_S = 120.0
# For those who know each other from afar only: how soon silence counts, and how often they beat.
# A process of a busy machine is silent for some tenths of a second, and must not count as gone.
SILENT_S = 1.0
BEAT_S = 0.2


async def drive(url: str, policy: str) -> None:
    """Drives until the run has ended, SIGTERM comes, or this process is declared dead.

    It reports what the store refuses to the witness, and tries again. So a disk that was full stays full until then,
    and nothing else happens.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with asyncio.timeout(DRIVE_S):
        over = False
        while not over and not stop.is_set():
            try:
                options = buoy.RunnerOptions(stop_grace_s=GRACE_S)
                async with buoy.open(url, workflows=WORKFLOWS, options=options) as app:
                    try:
                        over = await _on_board(app, policy, stop)
                    finally:
                        assert app.runner is not None
                        note("troubles", RUN, app.runner.troubles()[0])
            except Problem as error:
                note("refused", RUN, type(error).__name__)
                await asyncio.sleep(REFUSED_S)


async def _on_board(app: Client, policy: str, stop: asyncio.Event) -> bool:
    """Whether there is nothing left to do here."""
    assert app.runner is not None
    spoken = False
    while not stop.is_set():
        if app.runner.gone is not None:
            note("gone", RUN)
            return True
        try:
            if not spoken:
                await _speak(app, policy)
                spoken = True
            doc = (await app.record(RUN)).document
            if doc.pause is not None and doc.pause.reason == "hold":
                note("held", RUN)
                await app.resume(RUN)
            elif doc.pause is not None:
                note("paused", RUN, doc.pause.reason)
                return True
            if doc.ended:
                return True
        except Problem as error:
            note("refused", RUN, type(error).__name__)
        await asyncio.sleep(LOOK_S)
    return False


async def _speak(app: Client, policy: str) -> None:
    """Starts the run and sends its signal. Each is said again until it was acknowledged, and counts once."""
    await app.start_as(RUN, VOYAGES[policy], NUMBER)  # type: ignore[arg-type]
    note("started", RUN)
    try:
        receipt = await app.signal(RUN, "go", 1, dedupe="go")
    except WrongState:
        return  # it has ended
    note("signalled", RUN, receipt.number)


def expected() -> list[int]:
    return [NUMBER, NUMBER + 1, NUMBER + 2, NUMBER + 3, NUMBER + 4]


# ---- processes


def fork(url: str, policy: str, store: str, gate: Gate, *, host: str | None = None, errors: Path) -> int:
    """A process that drives, behind that gate."""

    def work() -> None:
        gate.install(store)
        if host is not None:
            live_apart(host)
        try:
            asyncio.run(drive(url, policy))
        finally:
            note("calls", "-", ",".join(f"{name}={count}" for name, count in sorted(gate.counts.items())))

    return in_child(work, errors)


def live_apart(host: str, silent_s: float = SILENT_S, slack_s: float | None = None) -> None:
    """As on a machine of its own, where silence is all that is known of the others; in quicker time than real.

    `slack_s`: how long an observer may look away before its looks begin again.
    """
    os.environ[HOST_VARIABLE] = host
    assert FailureDetector.__init__.__kwdefaults__ is not None
    assert Heartbeat.__init__.__kwdefaults__ is not None
    FailureDetector.__init__.__kwdefaults__.update(suspect_after_s=silent_s, apart_s=silent_s)
    if slack_s is not None:
        FailureDetector.__init__.__kwdefaults__.update(slack_s=slack_s)
    Heartbeat.__init__.__kwdefaults__.update(beat_s=BEAT_S)
    fleet.QUIET_AFTER_S = 1.5 * BEAT_S
    # A bucket is looked at seldom, since each request is billed.
    store.METERED_PACE = msgspec.structs.replace(store.METERED_PACE, fleet_s=BEAT_S)


def in_child(work: Callable[[], None], errors: Path) -> int:
    """The PID of a child that does this, and nothing after it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            handle = os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(handle, 2)
            open_witness()
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return child
