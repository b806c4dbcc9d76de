"""The guard: I/O in workflow code is refused with advice; what Python itself does at that time is let through."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import buoy

from .harness import opened, outcome_of, result_of, until_status
from .scripted_steps import work


def _open() -> None:
    with open(__file__):
        pass


def _connect() -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


def _thread() -> None:
    threading.Thread(target=print).start()


BLOCKING: dict[str, Callable[[], Any]] = {
    "open": _open,
    "path": lambda: Path(__file__).read_text(),
    "listdir": lambda: os.listdir("."),
    "mkdir": lambda: os.mkdir("made-by-a-workflow"),
    "remove": lambda: os.remove("made-by-a-workflow"),
    "connect": _connect,
    "name lookup": lambda: socket.getaddrinfo("localhost", 80),
    "subprocess": lambda: subprocess.run(["true"], check=True),
    "system": lambda: os.system("true"),
    "input": lambda: input("name? "),
}
if sys.version_info >= (3, 12):
    BLOCKING["thread"] = _thread
if sys.version_info >= (3, 13):
    BLOCKING["time.sleep"] = lambda: time.sleep(0)
BLOCKING["sleep, as later versions audit it"] = lambda: sys.audit("time.sleep", 1)
SLEEP_ADVICE = "(time.sleep): write `await asyncio.sleep(...)`, or `buoy.sleep(...)` in a plain `def`"
SAID = {
    "time.sleep": SLEEP_ADVICE,
    "sleep, as later versions audit it": SLEEP_ADVICE,
    "subprocess": "may not do I/O (subprocess.run)",
}


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("name", BLOCKING)
async def test_blocking_io_in_workflow_code_is_refused_with_advice(name: str, sync: bool, url: str) -> None:
    def refusal() -> str:
        try:
            BLOCKING[name]()
        except buoy.NotAllowedHere as error:
            return str(error)
        return "allowed"

    @buoy.workflow(name="does")
    async def does() -> str:
        await work("first")
        return refusal()

    @buoy.workflow(name="does")
    def does_sync() -> str:
        buoy.sleep(0)
        return refusal()

    workflow = does_sync if sync else does
    async with opened(url, workflow) as app:
        told = await result_of(app, await app.start(workflow))
        assert "put it in a step" in told
        assert SAID.get(name, "workflow code may not do I/O") in told
    # Code outside of workflows is refused nothing.
    _open()


ASYNC: dict[str, Callable[[], Any]] = {
    "to_thread": lambda: asyncio.to_thread(print),
    "run_in_executor": lambda: asyncio.get_running_loop().run_in_executor(None, print),
    "open_connection": lambda: asyncio.open_connection("127.0.0.1", 9),
    "start_server": lambda: asyncio.start_server(lambda r, w: None, "127.0.0.1", 0),
    "subprocess": lambda: asyncio.create_subprocess_exec("true"),
    "shell": lambda: asyncio.create_subprocess_shell("true"),
    "run_until_complete": lambda: asyncio.get_event_loop().run_until_complete(asyncio.Future()),
    "add_reader": lambda: asyncio.get_running_loop().add_reader(0, print),
    "call_soon_threadsafe": lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
    "signal handler": lambda: asyncio.get_running_loop().add_signal_handler(15, print),
    "stop": lambda: asyncio.get_running_loop().stop(),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("name", ASYNC)
async def test_leaving_the_private_loop_is_refused_with_advice(name: str, url: str) -> None:
    @buoy.workflow
    async def leaves() -> str:
        await work("first")
        try:
            await ASYNC[name]()
        except buoy.NotAllowedHere as error:
            return str(error)
        return "allowed"

    async with opened(url, leaves) as app:
        assert "put it in a step" in await result_of(app, await app.start(leaves))


async def test_an_own_event_loop_in_workflow_code_is_refused(url: str) -> None:
    @buoy.workflow
    async def nested() -> str:
        async def nothing() -> None: ...

        made = nothing()
        try:
            asyncio.run(made)
        except (RuntimeError, buoy.NotAllowedHere) as error:
            return type(error).__name__
        finally:
            made.close()
        return "allowed"

    async with opened(url, nested) as app:
        assert await result_of(app, await app.start(nested)) in ("RuntimeError", "NotAllowedHere")


async def test_a_refusal_that_nobody_catches_fails_the_run(url: str) -> None:
    @buoy.workflow
    async def opens() -> None:
        _open()

    async with opened(url, opens) as app:
        assert await outcome_of(app, await app.start(opens)) == ("failed", "NotAllowedHere")


async def test_imports_logging_and_warnings_still_work_in_workflow_code(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    handler = logging.FileHandler(tmp_path / "log.txt", delay=True)
    logger = logging.getLogger("workflow-under-test")
    logger.addHandler(handler)

    @buoy.workflow
    async def ordinary() -> int:
        import imported_late  # type: ignore[import-not-found]

        logger.error("from the workflow")
        warnings.warn("from the workflow", stacklevel=1)
        print("printed")
        try:
            raise ValueError("x")
        except ValueError:
            logger.exception("with a traceback")
        await work("first")
        return int(imported_late.VALUE)

    async with opened(url, ordinary) as app:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert await result_of(app, await app.start(ordinary)) == 7
    handler.close()
    logger.removeHandler(handler)
    assert "with a traceback" in (tmp_path / "log.txt").read_text()


async def test_steps_may_do_all_that_workflow_code_may_not(url: str) -> None:
    @buoy.step
    async def reads() -> int:
        return len(await asyncio.to_thread(Path(__file__).read_text))

    @buoy.step
    def reads_in_thread() -> int:
        _thread()
        return len(Path(__file__).read_text())

    @buoy.workflow
    async def both() -> list[int]:
        return [await reads(), await reads_in_thread.call()]

    async with opened(url, both) as app:
        one, other = await result_of(app, await app.start(both))
        assert one == other > 0


@pytest.mark.parametrize("when", ["at once", "after a step", "at replay"])
async def test_code_that_turns_for_ever_without_waiting_is_ended_with_a_clear_error(
    when: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buoy.engine.code.private_loop.TURNS", range(5_000))

    def spinning(spins: bool) -> buoy.Workflow[..., Any]:
        @buoy.workflow(name="spins")
        async def spins_() -> str:
            if when == "after a step":
                await work("first")
            if when == "at replay":
                await work("first")
                if not spins:
                    await buoy.wait_signal("go")
            while True:
                await asyncio.sleep(0)

        return spins_

    if when == "at replay":
        async with opened(url, spinning(False)) as app:
            await app.start_as("run", spinning(False))
            await until_status(app, "run", "waiting_signal")
        async with opened(url, spinning(True)) as app:
            await app.signal("run", "go")
            run = await app.get("run")
            assert (await outcome_of(app, run))[0] == "failed"
        return
    async with opened(url, spinning(True)) as app:
        run = await app.start_as("run", spinning(True))
        assert await outcome_of(app, run) == ("failed", "NotAllowedHere")
        assert "never waits for anything" in (await run.document()).error.message
        # The runner itself continues.
        other = buoy.workflow(name="other")(_fine)
        assert await result_of(app, await app.start(other)) == 3


async def _fine() -> int:
    return await work("x", 3)


@pytest.mark.parametrize("when", ["at once", "after a step", "in a task"])
async def test_workflow_code_that_exits_fails_its_run_and_not_the_process(when: str, url: str) -> None:
    error = SystemExit(3)

    @buoy.workflow
    async def leaves() -> None:
        async def leg() -> None:
            await work("leg")
            raise error

        if when != "at once":
            await work("first")
        if when == "in a task":
            await asyncio.gather(leg(), buoy.wait_signal("never"))
        raise error

    async with opened(url, leaves) as app:
        run = await app.start_as("run", leaves)
        assert await outcome_of(app, run) == ("failed", type(error).__name__)
        other = buoy.workflow(name="other")(_fine)
        assert await result_of(app, await app.start(other)) == 3


async def test_a_second_loop_in_workflow_code_is_refused_with_advice(url: str) -> None:
    async def fetch() -> int:
        return 1

    @buoy.workflow
    async def nested() -> int:
        call = fetch()
        try:
            return asyncio.run(call)
        finally:
            call.close()

    async with opened(url, nested) as app:
        with pytest.raises(buoy.RunFailed, match="await the coroutine, or put what does I/O in a step"):
            await result_of(app, await app.start(nested))
