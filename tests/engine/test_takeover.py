"""What happens before a lost run is driven again: its policy, solo runs, quarantine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import msgspec
import pytest

import buoy
from buoy.core.limits import POISON_CAP, SOLO_AFTER
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.questions import Question
from buoy.core.log.state import fold
from buoy.engine.run.run_time import carrying_due
from buoy.ports.records import Held, Message, Released, RunnerInfo, TaskChange, Write
from tests.patience import until

from .harness import until_event

PROOF = {"proof": "lock free", "runner": "dead", "pid": 1}


@buoy.step
async def first(n: int) -> int:
    return n + 1


@buoy.step
async def last(n: int) -> int:
    return n * 10


def made(policy: str) -> buoy.Workflow:
    @buoy.workflow(name=f"two_{policy}", recovery=policy)  # type: ignore[arg-type]
    async def two(n: int) -> int:
        return await last(await first(n))

    return two


async def lost(
    app, run_id: str, workflow: buoy.Workflow, crashes: int = 1, *, solo: int = 0, cause: str = "taken_over"
) -> None:
    """A run with its second step under way, whose owner has died so many times. `cause`: what its task says of it."""
    log = [
        e.WorkflowCreated(
            workflow=workflow.name, input=buoy_input(3), version=workflow.version, policy=workflow.recovery
        ),
        e.Claimed(runner="dead", cause="created"),
        e.StepStarted(leaf="first#1", name="first", args=buoy_input(3), key=f"{run_id}/first#1/0"),
        e.StepCompleted(leaf="first#1", result=raw(b"4")),
        e.StepStarted(leaf="last#1", name="last", args=buoy_input(4), key=f"{run_id}/last#1/0"),
    ]
    for count in range(crashes - 1):
        alone = {"solo": True} if crashes - 1 - count <= solo else {}
        log.append(e.Claimed(runner="dead", cause="taken_over", evidence=PROOF | alone))
    await app.store.register(RunnerInfo("dead", "elsewhere", "b", "ns", 1, "0", "x"))
    await store_log(app, run_id, log)
    assert await app.store.declare_dead("dead", "lock free", cause=cause, evidence=PROOF) == 1


def raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)


def buoy_input(n: int) -> msgspec.Raw:
    return raw(b'{"n":%d}' % n)


async def store_log(app, run_id: str, bodies: list[e.Body], task: TaskChange = Held("dead")) -> None:
    events = tuple(
        e.Event(place, 100.0 + place, body, nonce="n" if place == 1 else None) for place, body in enumerate(bodies, 1)
    )
    doc = document(fold(run_id, events))
    await app.store.commit([Write(run_id, 0, events, doc, task)])


async def log_of(app, run_id: str) -> list[e.Body]:
    return [event.body for event in await app.store.events(run_id)]


@pytest.fixture(params=["sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'x.db'}" if request.param == "sqlite" else f"file://{tmp_path / 'folder'}"


async def test_a_lost_run_that_wants_to_resume_goes_on_and_its_claim_is_durable_first(url: str) -> None:
    workflow = made("resume")
    async with buoy.open(url, workflows=[workflow]) as app:
        await lost(app, "r", workflow)
        assert await (await app.get("r")).result() == 40
        log = await log_of(app, "r")
        claim = next(body for body in log[5:] if isinstance(body, e.Claimed))
        assert claim.cause == "taken_over" and claim.evidence["proof"] == "lock free"
        assert not any(isinstance(body, e.BranchCreated) for body in log)


async def test_a_lost_run_that_wants_to_restart_begins_anew_on_a_branch(url: str) -> None:
    workflow = made("restart")
    async with buoy.open(url, workflows=[workflow]) as app:
        await lost(app, "r", workflow)
        assert await (await app.get("r")).result() == 40
        log = await log_of(app, "r")
        branch = next(body for body in log if isinstance(body, e.BranchCreated))
        assert branch.cutoff_seq == 0
        audit = next(body for body in log if isinstance(body, e.WorkflowRecovered))
        assert audit.finding == "H1" and audit.policy == "restart" and audit.cutoff_event == 0
        keys = [body.key for body in log if isinstance(body, e.StepStarted) and body.leaf == "last#1"]
        assert keys == ["r/last#1/0", "r/last#1/0"], "a restart by recovery keeps the keys"


async def test_a_restart_finds_the_end_of_a_child_that_had_ended(url: str, tmp_path: Path) -> None:
    """The child sends its end only once: it must not be refused before the code asks for the child again."""

    @buoy.workflow
    async def child() -> int:
        return await first(3)

    @buoy.workflow(recovery="restart")
    async def parent() -> int:
        await buoy.sleep(0.05)
        return await last(await last(await child()))

    async with buoy.open(f"sqlite:///{tmp_path}/first.db", workflows=[parent, child]) as app:
        assert await (await app.start_as("r", parent)).result() == 400
        log = [event.body for event in await app.store.events("r")]
        inbox = await app.store.inbox("r")
        born = next(body for body in log if isinstance(body, e.ChildStarted))
        of_child = await log_of(app, born.child)
    cut = next(place for place, body in enumerate(log) if isinstance(body, e.ChildFinished)) + 2
    async with buoy.open(url, workflows=[parent, child]) as app:
        await app.store.register(RunnerInfo("dead", "elsewhere", "b", "ns", 1, "0", "x"))
        await store_log(app, born.child, of_child)
        await store_log(app, "r", [*log[:1], e.Claimed(runner="dead", cause="created"), *log[2:cut]])
        for message in inbox:
            await app.store.send(msgspec.structs.replace(message, number=0))
        await app.store.declare_dead("dead", "lock free", cause="taken_over", evidence=PROOF)
        assert await (await app.get("r")).result() == 400
        bodies = await log_of(app, "r")
    assert [body.finding for body in bodies if isinstance(body, e.WorkflowRecovered)] == ["H1"]
    assert not any(isinstance(body, e.MessageRefused) for body in bodies)


async def test_a_lost_run_that_wants_to_fail_fails_and_says_why(url: str) -> None:
    workflow = made("fail")
    async with buoy.open(url, workflows=[workflow]) as app:
        await lost(app, "r", workflow)
        with pytest.raises(buoy.RunFailed, match="policy is fail"):
            await (await app.get("r")).result()
        assert (await app.record("r")).holder is None


async def test_a_lost_run_that_wants_to_be_held_is_paused(url: str) -> None:
    workflow = made("hold")
    async with buoy.open(url, workflows=[workflow]) as app:
        await lost(app, "r", workflow)

        async def held() -> bool:
            pause = (await app.record("r")).document.pause
            return pause is not None and pause.reason == "hold"

        await until(held)
        assert (await app.record("r")).due_at is None
        await app.resume("r")
        assert await (await app.get("r")).result() == 40


@pytest.mark.parametrize("cause", ["woken", "interrupted"])
async def test_a_lost_run_is_met_with_its_policy_whatever_its_task_says(url: str, cause: str) -> None:
    """A message may wake it before it is claimed, and a runner may stop that took it and did not claim it yet."""
    workflow = made("hold")
    async with buoy.open(url, workflows=[workflow]) as app:
        await lost(app, "r", workflow, cause=cause)
        claim, paused = (event.body for event in (await until_event(app, "r", "paused"))[-2:])
    assert isinstance(claim, e.Claimed) and claim.cause == "taken_over" and "dead" in str(claim.evidence["orphan"])
    assert isinstance(paused, e.Paused) and paused.reason == "hold"


async def test_a_run_that_crashed_often_is_driven_alone(url: str) -> None:
    workflow = made("resume")
    async with buoy.open(url, workflows=[workflow]) as app:
        await lost(app, "r", workflow, SOLO_AFTER)
        assert await (await app.get("r")).result() == 40
        claims = [body for body in await log_of(app, "r") if isinstance(body, e.Claimed)]
        assert claims[-1].evidence.get("solo") is True
        # Alone is over: others are taken again.
        assert await (await app.start(workflow, 1)).result() == 20


async def test_a_run_that_must_be_alone_is_claimed_before_its_code_runs_whatever_woke_it(url: str) -> None:
    """A sweep took note of its last crash. If its code ends this process too, the log must say whose that was."""
    workflow = made("resume")
    async with buoy.open(url, workflows=[workflow]) as app:
        crash = e.Claimed(runner="dead", cause="taken_over", evidence=PROOF)
        noted = e.Claimed(runner="sweeper", cause="taken_over", evidence=PROOF | {"finding": "H1"})
        log = [
            e.WorkflowCreated(workflow=workflow.name, input=buoy_input(3), version=workflow.version),
            e.Claimed(runner="dead", cause="created"),
            *[crash] * (SOLO_AFTER - 1),
            noted,
        ]
        await store_log(app, "r", log, Released(due_at=0.0, now=0.0, cause="resumed"))
        assert await (await app.get("r")).result() == 40
        claim, begins = (await app.store.events("r"))[len(log) : len(log) + 2]
    assert claim.body == e.Claimed(runner=claim.body.runner, cause="resumed", evidence={"solo": True})
    assert isinstance(begins.body, e.StepStarted) and begins.nonce is not None, "both are one commit"


async def test_waiting_runs_leave_memory_for_one_that_must_be_alone(url: str) -> None:
    workflow = made("resume")

    @buoy.workflow
    async def waits() -> str:
        return str(await buoy.wait_signal("go"))

    async with buoy.open(url, workflows=[workflow, waits]) as app:
        other = await app.start(waits)
        await lost(app, "r", workflow, SOLO_AFTER)
        assert await (await app.get("r")).result() == 40
        await other.signal("go", "on")
        assert await other.result() == "on"


async def test_of_several_answers_to_a_question_that_a_restart_hid_the_first_that_fits_counts(url: str) -> None:
    """The second answer was forged by a program; both are unread again, and the question is asked under the same id."""

    @buoy.workflow(recovery="restart")
    async def asks(n: int) -> str:
        await first(n)
        return str(await buoy.ask("Ship it?", kind="text"))

    question = e.InteractionRequested(leaf="ask#1", question_id="r/ask#1/0", question=Question("Ship it?", "text"))
    async with buoy.open(url, workflows=[asks]) as app:
        log = [
            e.WorkflowCreated(workflow=asks.name, input=buoy_input(3), version=asks.version, policy="restart"),
            e.Claimed(runner="dead", cause="created"),
            e.StepStarted(leaf="first#1", name="first", args=buoy_input(3), key="r/first#1/0"),
            e.StepCompleted(leaf="first#1", result=raw(b"4")),
            question,
            e.BranchCreated(branch=1, parent=0, cutoff_seq=0, kept=(), dropped=(), cause="restart"),
        ]
        await app.store.register(RunnerInfo("dead", "elsewhere", "b", "ns", 1, "0", "x"))
        await store_log(app, "r", log)
        for number, answer in enumerate((b'"yes"', b"17"), 1):
            body = raw(b'{"question_id":"r/ask#1/0","answer":%s}' % answer)
            await app.store.send(Message("r", "answer", f"d{number}", body))
        assert await app.store.declare_dead("dead", "lock free", cause="taken_over", evidence=PROOF) == 1
        assert await (await app.get("r")).result() == "yes"


async def test_a_timer_of_a_run_that_must_be_alone_fires_by_the_time_that_its_task_carries(url: str) -> None:
    """The log is dated hours later than the clock here says: another machine wrote it."""

    @buoy.workflow
    async def naps(n: int) -> int:
        with contextlib.suppress(buoy.StepFailed):
            await last(n)
        await asyncio.sleep(3_600.0)
        return n

    async with buoy.open(url, workflows=[naps]) as app:
        now = time.time()
        later = now + 10_000.0
        failed = e.StepFailed(leaf="last#1", error=e.ErrorInfo(type="ValueError", message="no"))
        crashes = [e.Claimed(runner="dead", cause="taken_over", evidence=PROOF)] * SOLO_AFTER
        log = [
            e.WorkflowCreated(workflow=naps.name, input=buoy_input(3), version=naps.version),
            e.Claimed(runner="dead", cause="created"),
            e.StepStarted(leaf="last#1", name="last", args=buoy_input(3), key="r/last#1/0"),
            *crashes,
            failed,
            e.TimerStarted(leaf="timer#1", due_at=later + 3_600.0),
        ]
        events = tuple(e.Event(n, later, body, nonce="n" if n == 1 else None) for n, body in enumerate(log, 1))
        due = Released(due_at=now + 0.1, now=now, evidence=carrying_due(later + 3_600.0))
        await app.store.commit([Write("r", 0, events, document(fold("r", events)), due)])
        assert await (await app.get("r")).result() == 3
        claims = [body for body in await log_of(app, "r") if isinstance(body, e.Claimed)]
        assert claims[-1].evidence == {"solo": True}
        assert len(claims) == 2 + SOLO_AFTER


async def test_a_run_that_went_to_somebody_else_while_it_waited_to_be_alone_is_left_to_him(url: str) -> None:
    workflow = made("resume")
    goes_on = asyncio.Event()

    @buoy.step
    async def long() -> None:
        await goes_on.wait()

    @buoy.workflow
    async def busy() -> None:
        await long()

    async with buoy.open(url, workflows=[workflow, busy]) as app:
        other = await app.start(busy)
        await until(lambda: has_started(app, other.id))
        await lost(app, "r", workflow, SOLO_AFTER)
        await until(lambda: is_held(app, "r"))
        # A process that was declared dead too early wrote once more, and another runner took the run from it.
        await app.store.register(RunnerInfo("else", "elsewhere", "b", "ns", 1, "0", "y"))
        log = await app.store.events("r")
        claim = e.Event(len(log) + 1, log[-1].at, e.Claimed(runner="else", cause="taken_over"), nonce="else-1")
        doc = document(fold("r", [*log, claim]))
        await app.store.commit([Write("r", len(log), (claim,), doc, Held("else"))])
        goes_on.set()
        await other.result()
        await until(lambda: turn_is_over(app))
        claims = [body.runner for body in await log_of(app, "r") if isinstance(body, e.Claimed)]
        assert claims[-1] == "else"


async def has_started(app, run_id: str) -> bool:
    return any(isinstance(body, e.StepStarted) for body in await log_of(app, run_id))


async def turn_is_over(app) -> bool:
    """No run waits here to be isolated, or is isolated."""
    return not app.runner.intake._isolation.wanted


async def is_held(app, run_id: str) -> bool:
    return (await app.record(run_id)).holder is not None


async def test_a_poison_run_is_put_into_quarantine_with_step_and_signature(url: str) -> None:
    workflow = made("resume")
    async with buoy.open(url, workflows=[workflow]) as app:
        await lost(app, "r", workflow, SOLO_AFTER + POISON_CAP, solo=POISON_CAP)

        async def apart() -> bool:
            pause = (await app.record("r")).document.pause
            return pause is not None and pause.reason == "poison"

        await until(apart)
        detail = (await app.record("r")).document.pause.detail or ""
        assert "last#1" in detail and "lock free" in detail
        # A release by a person restarts the count.
        await app.resume("r")
        assert await (await app.get("r")).result() == 40


async def test_dropped_code_that_swallows_everything_does_not_hang_its_runner(url: str) -> None:
    @buoy.workflow
    async def stubborn() -> str:
        while True:
            try:
                await asyncio.gather(buoy.sleep("1d"), buoy.sleep("2d"))
                return "x"
            except BaseException:
                continue

    async with buoy.open(url, workflows=[stubborn]) as app:
        await app.start_as("r", stubborn)
        await until_event(app, "r", "timer_started", 2)
        assert app.runner is not None and app.runner.holding() == 1
    # The runner came to its end; the run waits for the next one.
    assert app.runner.executions == {}
    async with buoy.connect(url) as client:
        assert (await client.state("r")).status == "waiting"


async def test_a_sync_workflow_that_catches_its_own_waiting_fails_with_advice(url: str) -> None:
    @buoy.workflow
    def swallows() -> str:
        with contextlib.suppress(BaseException):
            buoy.sleep("1d")
        return "done"

    async with buoy.open(url, workflows=[swallows]) as app:
        with pytest.raises(buoy.RunFailed, match="catch Exception, never BaseException"):
            await (await app.start(swallows)).result()


async def test_a_successor_is_bound_to_the_version_that_its_run_had(url: str) -> None:
    @buoy.workflow
    async def on_and_on(n: int) -> int:
        if n < 2:
            buoy.continue_as_new(n + 1)
        return n

    async with buoy.open(url, workflows=[on_and_on]) as app:
        run = await app.start_as("r", on_and_on, 0)
        await run.result()
        log = await log_of(app, "r.c2")
        assert isinstance(log[0], e.WorkflowCreated) and log[0].version == on_and_on.version


@pytest.mark.parametrize(
    ("said", "attempts", "kind"),
    [("transient", 3, "transient"), ("permanent", 1, "permanent"), (None, 3, "unknown"), ("odd", 3, "unknown")],
)
async def test_a_step_says_itself_what_its_errors_are(said: str | None, attempts: int, kind: str, url: str) -> None:
    ran: list[int] = []

    @buoy.step(retries=2, backoff="1ms", classify=lambda error: said if isinstance(error, LookupError) else None)
    async def declined() -> None:
        ran.append(1)
        raise LookupError("no such card")

    @buoy.workflow
    async def pays() -> None:
        await declined()

    async with buoy.open(url, workflows=[pays]) as app:
        with pytest.raises(buoy.RunFailed, match="none of" if said == "odd" else "no such card"):
            await (await app.start_as("r", pays)).result()
        failed = next(body for body in await log_of(app, "r") if isinstance(body, e.StepFailed))
        assert (len(ran), failed.error.kind) == (attempts, kind)


async def test_a_suspect_in_a_long_back_off_is_given_back_and_comes_back_alone(url: str) -> None:
    tries: list[int] = []

    @buoy.step(name="last", retries=3, backoff="90s")
    async def fails(n: int) -> int:
        tries.append(n)
        raise ValueError("not yet")

    @buoy.workflow(name="two_suspect")
    async def suspect(n: int) -> int:
        return await fails(await first(n))

    async with buoy.open(url, workflows=[suspect, made("resume")]) as app:
        await lost(app, "r", suspect, SOLO_AFTER)
        await until_event(app, "r", "retry_scheduled")
        # In memory its next attempt would begin beside the runs that are taken by then.
        await until(lambda: left_memory(app, "r"))
        assert tries == [4]
        assert await (await app.start(made("resume"), 1)).result() == 20
        assert (await app.record("r")).due_at is not None


async def left_memory(app, run_id: str) -> bool:
    return run_id not in app.runner.executions and (await app.record(run_id)).holder is None
