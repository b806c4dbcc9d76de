"""One run's trouble is its own: an unexpected error behind any door pauses the run that met it, and no other run.

Each case plants an error into one place of the engine, for the run `victim` alone. The victim is paused with the
reason and the place; the other runs of the process, their timers included, come to their end; `why` explains the
pause; and once the cause is gone, `resume` brings the victim to its end.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import buoy
from buoy.core.explain.explain import explain
from buoy.core.explain.phrases import Wording
from buoy.engine.client.client import Client
from buoy.engine.code.async_decider import AsyncDecider
from buoy.engine.code.sync_decider import SyncDecider
from buoy.engine.process.intake import Intake
from buoy.engine.run.code import Code
from buoy.engine.run.execution import Execution
from buoy.engine.run.leaves import Leaves
from buoy.engine.run.ledger import Ledger
from buoy.engine.run.mailbox import Mailbox
from buoy.engine.run.outbox import Outbox
from buoy.engine.run.saga import Saga
from buoy.engine.run.step_attempt import StepAttempt
from buoy.engine.services.timers import Timers
from buoy.host.clock import SystemClock
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import read_fleet
from tests.engine.harness import log_of, opened, outcome_of, plant, store_at, until, until_status

VICTIM = "victim"
MARK = "planted by this test"


class Planted(LookupError):
    """An error that no code of the engine raises or expects."""


def run_of(owner: Any, args: tuple[Any, ...]) -> str:
    """The run on whose behalf a method was called."""
    for place in (owner, *args):
        for name in ("run_id", "_run_id"):
            found = getattr(place, name, None)
            if isinstance(found, str):
                return found
        for name in ("_execution", "_context"):
            found = getattr(getattr(place, name, None), "run_id", None)
            if isinstance(found, str):
                return found
    return next((each for each in args if isinstance(each, str)), "")


class Fault:
    """An error planted into a method, for one run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
        self.met = 0
        self.on = True
        real = getattr(owner, method)

        def check(given: Any, args: tuple[Any, ...]) -> None:
            if self.on and run_of(given, args).startswith(VICTIM):
                self.met += 1
                raise Planted(MARK)

        def plain(given: Any, *args: Any, **named: Any) -> Any:
            check(given, args)
            return real(given, *args, **named)

        async def later(given: Any, *args: Any, **named: Any) -> Any:
            check(given, args)
            return await real(given, *args, **named)

        monkeypatch.setattr(owner, method, later if inspect.iscoroutinefunction(real) else plain)


@buoy.step
async def refund(number: int) -> None:
    await asyncio.sleep(0)


@buoy.step(compensate=refund)
async def add(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


@buoy.step
def add_in_thread(number: int) -> int:
    return number + 1


@buoy.workflow
async def child(number: int) -> int:
    return number


@buoy.workflow
async def steps() -> int:
    return await add_in_thread.call(await add(1))


@buoy.workflow
async def sleeper() -> int:
    await buoy.sleep("10ms")
    return await add(1)


@buoy.workflow
async def listener() -> str:
    return str(await buoy.wait_signal("go"))


@buoy.workflow
async def parent() -> int:
    return await child(3)


@buoy.workflow
def plain() -> int:
    return add_in_thread(add_in_thread(1))


@buoy.workflow
async def undone() -> int:
    await add(1)
    raise ValueError("for the saga")


WORKFLOWS = (steps, sleeper, listener, parent, plain, undone, child)
BYSTANDERS = (steps, sleeper, listener, parent, plain)

DOORS: list[tuple[type, str, Any]] = [
    (Leaves, "_body_done", steps),
    (Leaves, "_start", steps),
    (Leaves, "_run_body", steps),
    (Leaves, "_due", sleeper),
    (StepAttempt, "begin", steps),
    (StepAttempt, "_call", steps),
    (Ledger, "_settle", steps),
    (Mailbox, "_look_at", listener),
    (Outbox, "_create", parent),
    (Code, "begin", steps),
    (SyncDecider, "_asked", plain),
    (SyncDecider, "_take_outcome", plain),
    (Saga, "_run", undone),
    (Saga, "_ran", undone),
]


async def why(app: Client, run_id: str) -> str:
    record = await app.record(run_id)
    facts, _ = await facts_of_run(app.store, await read_fleet(app.store, app.liveness), record)
    found = explain(facts, Wording())
    return "\n".join([found.headline, found.now, *found.wrong, *found.next, *found.you_can])


async def others_end(app: Client) -> None:
    """Runs that begin after the trouble, in the same process."""
    runs = [await app.start_as(f"other-{each.name}", each) for each in BYSTANDERS]
    await app.signal("other-listener", "go", "now")
    for run in runs:
        assert (await outcome_of(app, run))[0] == "completed"


async def held(app: Client) -> None:
    state = await until_status(app, VICTIM, "paused")
    assert state.pause is not None and state.pause.reason == "hold"
    assert MARK in str(state.pause.detail) and "test_one_door" in str(state.pause.detail)
    assert app.runner is not None and MARK in str(app.runner.troubles()[1])
    told = await why(app, VICTIM)
    assert MARK in told and "Planted" in told and "resume" in told


@pytest.mark.parametrize(("owner", "method", "workflow"), DOORS, ids=lambda each: getattr(each, "__name__", each))
async def test_an_unexpected_error_pauses_its_run_and_no_other(
    any_url: str, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, workflow: Any
) -> None:
    fault = Fault(monkeypatch, owner, method)
    async with opened(any_url, *WORKFLOWS) as app:
        run = await app.start_as(VICTIM, workflow)
        if workflow is listener:
            await app.signal(VICTIM, "go", "now")
        await held(app)
        assert fault.met
        await others_end(app)
        fault.on = False
        await until(lambda: VICTIM not in app.runner.executions)  # type: ignore[union-attr]
        await app.resume(VICTIM)
        status, _ = await outcome_of(app, run)
        assert status == ("failed" if workflow is undone else "completed")


@pytest.mark.parametrize(
    ("owner", "method"), [(Intake, "_workflow_of"), (Code, "replay"), (Execution, "bind"), (Leaves, "take_up")]
)
async def test_an_unexpected_error_while_a_run_is_taken_pauses_it_and_no_other(
    any_url: str, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    async with opened(any_url, *WORKFLOWS) as app:
        await app.start_as("model", listener)
        log = await log_of(app, "model")
    fault = Fault(monkeypatch, owner, method)
    async with store_at(any_url) as store:
        await plant(store, VICTIM, log)
    async with opened(any_url, *WORKFLOWS) as app:
        await held(app)
        assert fault.met
        await others_end(app)
        fault.on = False
        await until(lambda: VICTIM not in app.runner.executions)  # type: ignore[union-attr]
        await app.resume(VICTIM)
        await app.signal(VICTIM, "go", "now")
        await until_status(app, VICTIM, "completed")


async def test_an_unexpected_error_at_a_graceful_stop_pauses_its_run_and_the_others_are_given_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()

    @buoy.step
    async def wait_for_stop() -> None:
        started.release()
        await release.wait()

    @buoy.workflow
    async def stopped() -> None:
        await wait_for_stop()

    started = asyncio.Semaphore(0)
    fault = Fault(monkeypatch, Execution, "_interrupt")
    async with opened(url, stopped) as app:
        for name in (VICTIM, "other"):
            await app.start_as(name, stopped)
        for _ in range(2):
            await started.acquire()
        assert app.runner is not None
        stopping = asyncio.ensure_future(app.runner.stop("SIGTERM"))
        await until(lambda: all(each.stopping for each in app.runner.executions.values()))  # type: ignore[union-attr]
        release.set()
        await stopping
        assert fault.met
        assert (await app.record(VICTIM)).document.status == "paused"
        assert (await app.record("other")).document.status == "interrupted"


async def test_a_run_whose_trouble_cannot_be_recorded_is_given_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [Fault(monkeypatch, Leaves, "_body_done"), Fault(monkeypatch, Execution, "held")]
    async with opened(url, *WORKFLOWS) as app:
        await app.start_as(VICTIM, steps)
        await until(lambda: VICTIM not in app.runner.executions)  # type: ignore[union-attr]
        assert all(each.met for each in faults)
        assert app.runner is not None and MARK in str(app.runner.troubles()[1])

        async def released() -> bool:
            return (await app.record(VICTIM)).holder is None

        await until(released)
        await others_end(app)


async def test_a_run_that_cannot_be_created_is_refused_to_the_caller(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(monkeypatch, Execution, "_create")
    async with opened(url, *WORKFLOWS) as app:
        with pytest.raises((Planted, buoy.Problem)):
            await app.start_as(VICTIM, steps)
        assert fault.met
        await others_end(app)


async def test_an_alarm_whose_callback_fails_is_reported_and_the_others_ring() -> None:
    errors: list[Exception] = []
    timers, clock = Timers(SystemClock(), errors.append), SystemClock()
    rang = asyncio.Event()

    def fails() -> None:
        raise Planted(MARK)

    timers.set(clock.now() - 1.0, fails)
    timers.set(clock.now() - 0.5, fails)
    timers.set(clock.now() + 0.001, rang.set)
    await rang.wait()
    assert [type(each) for each in errors] == [Planted, Planted]
    timers.close()


async def test_cancelled_alarms_do_not_stay_until_they_are_due() -> None:
    clock = SystemClock()
    timers = Timers(clock)
    kept = timers.set(clock.now() + 5_000.0, lambda: None)
    for _ in range(10_000):
        timers.set(clock.now() + 9_000.0, lambda: None).cancel()
    assert len(timers._heap) <= 202
    assert kept.callback is not None
    timers.close()


def _callbacks() -> list[Callable[[], BaseException]]:
    return [lambda: KeyboardInterrupt(), lambda: SystemExit(3), lambda: GeneratorExit()]


@pytest.mark.parametrize("make", _callbacks(), ids=["KeyboardInterrupt", "SystemExit", "GeneratorExit"])
@pytest.mark.parametrize("where", ["code", "sync code", "async step", "sync step", "after a wait"])
async def test_code_that_tries_to_end_the_process_ends_only_its_run(
    any_url: str, make: Callable[[], BaseException], where: str
) -> None:
    @buoy.step
    async def rash_step() -> None:
        raise make()

    @buoy.step
    def rash_thread() -> None:
        raise make()

    @buoy.workflow
    async def rash() -> None:
        if where == "code":
            raise make()
        if where == "after a wait":
            await add(1)
            raise make()
        await (rash_step() if where == "async step" else rash_thread.call())

    @buoy.workflow
    def rash_plain() -> None:
        raise make()

    chosen = rash_plain if where == "sync code" else rash
    async with opened(any_url, chosen, *WORKFLOWS) as app:
        run = await app.start_as(VICTIM, chosen)
        assert (await outcome_of(app, run))[0] == "failed"
        await others_end(app)


def _surrogates() -> dict[str, Any]:
    """Where text that UTF-8 cannot express comes from: most often from the name of a file."""
    name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")

    @buoy.step
    async def fails() -> None:
        raise ValueError(f"cannot parse {name}")

    @buoy.step
    def fails_in_thread() -> None:
        raise ValueError(f"cannot parse {name}")

    @buoy.workflow
    async def step_error() -> None:
        await fails()

    @buoy.workflow
    async def thread_error() -> None:
        await fails_in_thread.call()

    @buoy.workflow
    async def code_error() -> None:
        raise ValueError(name)

    @buoy.workflow
    async def cancelled() -> None:
        raise buoy.Cancelled(name)

    @buoy.workflow
    async def asks() -> None:
        await buoy.ask(name)

    return {each.name: each for each in (step_error, thread_error, code_error, cancelled, asks)}


@pytest.mark.parametrize("kind", ["step_error", "thread_error", "code_error", "cancelled", "asks"])
async def test_text_that_no_store_can_keep_ends_only_its_run_and_is_readable(any_url: str, kind: str) -> None:
    workflow = _surrogates()[kind]
    async with opened(any_url, workflow, *WORKFLOWS) as app:
        run = await app.start_as(VICTIM, workflow)
        assert (await outcome_of(app, run))[0] == ("cancelled" if kind == "cancelled" else "failed")
        text = str((await app.record(VICTIM)).document.error) if kind != "cancelled" else "caf"
        assert "caf" in text or kind == "asks"
        assert await log_of(app, VICTIM)
        await others_end(app)


@buoy.workflow
async def two_signals() -> list[Any]:
    return [await buoy.wait_signal("go"), await buoy.wait_signal("go")]


async def test_messages_behind_the_one_that_held_the_run_are_left_for_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first one led to was taken back, so it is the first one again when the run continues."""
    async with opened(url, two_signals) as app:
        await app.start_as(VICTIM, two_signals)
        await until_status(app, VICTIM, "waiting_signal")
    async with buoy.connect(url) as client:
        for number in (1, 2):
            await client.signal(VICTIM, "go", number)
    fault = Fault(monkeypatch, AsyncDecider, "deliver")
    async with opened(url, two_signals) as app:
        await until_status(app, VICTIM, "paused")
        assert not [event for event in await log_of(app, VICTIM) if event.type == "signal_received"]
        fault.on = False
        await app.resume(VICTIM)
        assert await outcome_of(app, await app.get(VICTIM)) == ("completed", [1, 2])


async def test_a_run_that_cannot_even_be_given_back_keeps_none_of_the_others_from_being_taken(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of one claim are loaded in groups: what fails in the first group must not leave the second undriven."""
    async with buoy.connect(any_url) as client:
        for name in (VICTIM, *(f"other-{number}" for number in range(70))):
            await client.start_as(name, child, 1)
    faults = [Fault(monkeypatch, Intake, "_take"), Fault(monkeypatch, Intake, "_give_back")]
    monkeypatch.setattr("buoy.engine.process.intake.hold_broken", _never)
    async with opened(any_url, *WORKFLOWS) as app:
        for number in range(70):
            await until_status(app, f"other-{number}", "completed")
        assert all(each.met for each in faults)


async def _never(*_: Any) -> bool:
    return False
