"""Retry and jump are all or nothing: refused, timed out or killed in the middle, they leave the run as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.log import events as e
from buoy.engine.client import rewind, rewind_hold
from buoy.engine.run.mailbox import Reason
from buoy.errors import Unavailable
from tests.engine.harness import bodies_of, log_of, opened, types_of, until, until_event, until_status
from tests.freeze import freeze

WORKER = """
import asyncio, sys, buoy
from buoy.engine.client import rewind_hold

@buoy.step
async def first() -> int:
    return 1

@buoy.workflow
async def waits() -> str:
    await first()
    return str(await buoy.wait_signal("go"))

async def work() -> None:
    async with buoy.open(sys.argv[2], workflows=[waits]) as app:
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

async def jump() -> None:
    rewind_hold.REWIND_HOLD_S = float(sys.argv[3])
    rewind_hold.RewindHold.give_up = None  # a process that is killed gives nothing up
    async with buoy.connect(sys.argv[2]) as client:
        real = client.store.events
        async def hang(*given, **named):
            document = (await client.record("r")).document
            if document.pause is not None:
                print("paused", flush=True)
                await asyncio.get_running_loop().create_future()
            return await real(*given, **named)
        client.store.events = hang
        await client.jump("r", "first")

asyncio.run(work() if sys.argv[1] == "work" else jump())
"""


@buoy.step
async def first() -> int:
    return 1


@buoy.workflow
async def waits() -> str:
    await first()
    return str(await buoy.wait_signal("go"))


@pytest.mark.parametrize("ask", ["retry", "jump to a typo", "retry of a typo"])
async def test_a_request_that_cannot_be_met_touches_nothing(any_url: str, ask: str) -> None:
    async with opened(any_url, waits) as app:
        await app.start_as("r", waits)
        await until_status(app, "r", "waiting_signal")
        before = await log_of(app, "r")
        with pytest.raises(buoy.UserError):
            match ask:
                case "retry":
                    await app.retry("r")
                case "retry of a typo":
                    await app.retry("r", "typo")
                case _:
                    await app.jump("r", "typo")
        assert await log_of(app, "r") == before
        await app.signal("r", "go")
        await until_status(app, "r", "completed")


async def test_a_worker_that_stands_still_is_left_as_it_was_after_it_moves_again(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request to pause is still unread when the client gives up: the worker reads it together with its recall."""
    monkeypatch.setattr(rewind_hold, "_WAIT_S", 0.3)
    async with opened(any_url, waits) as app:
        await app.start_as("r", waits)
        await until_status(app, "r", "waiting_signal")
        assert app.runner is not None
        reads = app.runner.intake.inboxes.read
        stands_still = True

        async def read() -> None:
            if not stands_still:
                await reads()

        monkeypatch.setattr(app.runner.intake.inboxes, "read", read)
        async with buoy.connect(any_url) as client:
            with pytest.raises(buoy.WrongState, match="nothing was changed"):
                await client.jump("r", "first")
        stands_still = False
        await until_event(app, "r", "resumed")
        assert (await app.record("r")).document.status == "waiting_signal"
        await app.signal("r", "go", "done")
        await until_status(app, "r", "completed")


async def test_a_jump_ends_the_hold_that_an_earlier_client_left(any_url: str) -> None:
    """Else the commit would park a paused run, and only a sweep would find that its pause is over."""
    async with opened(any_url, waits) as app:
        await app.start_as("r", waits)
        await until_status(app, "r", "waiting_signal")
        async with buoy.connect(any_url) as client:
            await client.request("r", "pause", Reason("to go back to an earlier step", hold_s=600.0))
            await until_status(app, "r", "paused")
            await client.jump("r", "first")
            await until_status(app, "r", "waiting_signal")
            await client.signal("r", "go", "done")
        await until_status(app, "r", "completed")
        assert (await types_of(app, "r")).count("step_completed") == 2


@pytest.mark.parametrize("place", ["plan", "commit"])
async def test_an_error_after_the_hold_takes_it_back(any_url: str, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    async with opened(any_url, waits) as app:
        await app.start_as("r", waits)
        await until_status(app, "r", "waiting_signal")
        async with buoy.connect(any_url) as client:
            planned = rewind._plan

            async def plan(*given: Any, **named: Any) -> Any:
                if (await client.record("r")).document.pause is not None:
                    raise Unavailable("the store is away")
                return await planned(*given, **named)

            async def commit(*given: Any, **named: Any) -> Any:
                raise Unavailable("the store is away")

            if place == "plan":
                monkeypatch.setattr(rewind, "_plan", plan)
            else:
                monkeypatch.setattr(client.store, "commit", commit)
            with pytest.raises(Unavailable):
                await client.jump("r", "first")
        await until_event(app, "r", "resumed")
        await until_status(app, "r", "waiting_signal")
        await app.signal("r", "go", "done")
        await until_status(app, "r", "completed")


async def test_a_pause_of_a_person_is_not_taken_back_with_the_hold(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(url, waits) as app:
        await app.start_as("r", waits)
        await until_status(app, "r", "waiting_signal")
        await app.pause("r", "lunch")
        await until_status(app, "r", "paused")

        async def commit(*_: Any) -> bool:
            return False

        monkeypatch.setattr(rewind, "commit_surely", commit)
        with pytest.raises(buoy.WrongState):
            await app.jump("r", "first")
        pause = (await app.record("r")).document.pause
        assert pause is not None and (pause.reason, pause.detail) == ("user", "lunch")


async def test_a_jump_of_a_run_that_a_worker_drives_still_works_and_leaves_no_message_unread(any_url: str) -> None:
    async with opened(any_url, waits) as app:
        await app.start_as("r", waits)
        await until_status(app, "r", "waiting_signal")
        async with buoy.connect(any_url) as client:
            await client.jump("r", "first")
        await until_event(app, "r", "signal_waited", 2)
        await app.signal("r", "go", "done")
        await until_status(app, "r", "completed")
        assert (await types_of(app, "r")).count("step_started") == 2


def spawn(script: Path, *given: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script), *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


async def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).strip()


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_client_that_is_killed_in_the_middle_leaves_no_run_paused(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/folder"
    script = tmp_path / "rewinds.py"
    script.write_text(WORKER)
    worker = spawn(script, "work", url)
    try:
        assert await line_of(worker) == "ready"
        async with buoy.connect(url) as client:
            await client.start_as("r", waits)
            await until_status(client, "r", "waiting_signal")
            jumper = spawn(script, "jump", url, "1.0")
            try:
                assert await line_of(jumper) == "paused"
            finally:
                jumper.send_signal(signal.SIGKILL)
                jumper.wait()
            pause = (await bodies_of(client, "r", e.Paused))[0]
            assert pause.reason == "rewind" and pause.expires_at is not None
            await until_event(client, "r", "resumed")
            await until_status(client, "r", "waiting_signal")
            await client.signal("r", "go", "done")
            await until_status(client, "r", "completed")
    finally:
        worker.kill()
        worker.wait()


async def test_a_worker_that_is_stopped_during_a_jump_resumes_the_run_afterwards(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    script = tmp_path / "rewinds.py"
    script.write_text(WORKER)
    worker = spawn(script, "work", url)
    try:
        assert await line_of(worker) == "ready"
        async with buoy.connect(url) as client:
            await client.start_as("r", waits)
            await until_status(client, "r", "waiting_signal")
            await asyncio.to_thread(freeze, worker.pid, url)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(rewind_hold, "_WAIT_S", 0.5)
                with pytest.raises(buoy.WrongState):
                    await client.jump("r", "first")
            os.kill(worker.pid, signal.SIGCONT)
            await until_event(client, "r", "resumed")
            await until_status(client, "r", "waiting_signal")
            await client.signal("r", "go", "done")
            await until_status(client, "r", "completed")
            await until(lambda: worker.poll() is None)
    finally:
        worker.kill()
        worker.wait()


async def test_a_hold_ends_by_itself_while_a_step_of_the_run_executes(any_url: str) -> None:
    """The client was killed, and a step takes hours: the other parts of the run must not stand still until it ends."""
    ends = asyncio.Event()

    @buoy.step
    async def long_step() -> int:
        await ends.wait()
        return 2

    @buoy.workflow
    async def both() -> list[Any]:
        return await asyncio.gather(long_step(), waits_for_go())

    async def waits_for_go() -> int:
        await buoy.wait_signal("go")
        return await first()

    async with opened(any_url, both) as app:
        run = await app.start_as("r", both)
        await until_event(app, "r", "signal_waited")
        await app.request(run.id, "pause", Reason("to go back to an earlier step", hold_s=0.2))
        await until_event(app, "r", "resumed")
        await app.signal("r", "go")
        await until_event(app, "r", "step_completed")
        assert not ends.is_set()
        ends.set()
        assert await run.result() == [2, 1]
        assert (await types_of(app, "r")).count("claimed") == 1
